"""Training on images of several labels: pairs of digits side by side."""

import numpy as np
import pytest
import sklearn.metrics
from sklearn.datasets import load_digits

from keras_vit.data import load
from keras_vit.training.tasks import make_task
from keras_vit.training.trainer import load_training_data, train
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import encode
from tests.fixtures.small_runs import small_data, small_model, small_recipe

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch", reason="models are trained on each")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Pictures of two of the digits 0, 1 and 2, and a CSV file; a picture may be broken."""
    root, digits, lines = tmp_path_factory.mktemp("pairs"), load_digits(n_class=3), []
    for index in range(60):
        left, right = 2 * index, 2 * index + 1
        picture = np.hstack([digits.images[left], digits.images[right]]) * 15
        file = encode(np.repeat(picture[..., None], 3, axis=-1).astype("uint8"))
        (root / f"{index}.png").write_bytes(b"broken" if index == 7 else file)
        lines.append(f"{index}.png,{digits.target[left]} {digits.target[right]}")
    (root / "pairs.csv").write_text("\n".join(lines))
    return f"csv:{root / 'pairs.csv'}"


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [False, True])
def test_precision_of_each_epoch_is_exact(freeze, pairs, tmp_path):
    monitor = "val_mean_average_precision"
    settings = {"loss": "sigmoid", "steps": 6, "batch_size": 16, "warmup_steps": 1}
    recipe = small_recipe(**settings, freeze=freeze, monitor=monitor)
    model = small_model(recipe)
    data = load_training_data(recipe, pairs, split="train", validation="validation+test")
    history = train(recipe, model, data, tmp_path / "run").history
    logits, labels = [], []
    for images, rows in load(pairs, "validation+test", recipe.image_size, 5).as_numpy_iterator():
        logits.append(to_numpy(model(images)))
        labels.append(rows)
    labels, logits = np.concatenate(labels), np.concatenate(logits)
    expected = sklearn.metrics.average_precision_score(labels, logits)
    assert history[-1][monitor] == pytest.approx(expected, abs=1e-6)
    thresholds = model.thresholds
    assert 0 < min(thresholds) < max(thresholds) < 1
    model.thresholds = None
    data = load_training_data(recipe, pairs, split="train", validation="validation+test")
    assert train(recipe, model, data, tmp_path / "run", resume=True).history == history
    assert model.thresholds == thresholds


@pytest.mark.slow
def test_a_run_of_one_label_drops_the_thresholds_of_its_model():
    recipe = small_recipe()
    model = small_model(recipe)
    model.thresholds = (0.5,) * 3
    make_task(recipe, model, *small_data(recipe))
    assert model.thresholds is None
