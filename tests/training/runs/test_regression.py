"""Training on values, which are standardized during the training only."""

import json
import pathlib

import keras
import numpy as np
import pytest
import sklearn.metrics

from keras_vit.data import load
from keras_vit.models.keras_files import load_model
from keras_vit.training.tasks import make_task
from keras_vit.training.trainer import load_training_data, train
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import small_model, small_recipe
from tests.fixtures.stopped import assert_same_variables, stopped
from tests.fixtures.values import NAMES, write_values

pytestmark = [
    pytest.mark.backends("tensorflow", "jax", "torch", reason="models are trained on each"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pictures with a brightness and a year; one of the pictures is broken."""
    return write_values(tmp_path_factory.mktemp("pictures"), p7=b"broken")


def recipe_of(**changes):
    settings = {"loss": "regression", "batch_size": 8, "learning_rate": 0.1, "min_crop_area": None}
    return small_recipe(**{**settings, **changes})


def model_of(recipe, num_classes=2, **options):
    keras.utils.set_random_seed(0)
    return small_model(recipe, num_classes, **options)


@pytest.mark.parametrize(
    "settings",
    [{"augmentation": "mixup", "ema_momentum": 0.9}, {"freeze": True, "loss": "regression_mae"}],
    ids=["mixup", "frozen"],
)
def test_a_stopped_run_goes_on(settings, data, tmp_path):
    recipe = recipe_of(**settings)

    def begin(name):
        model = model_of(recipe, dropout=0.1)
        return train(recipe, model, data, tmp_path / name, resume=True, split="train+test")

    whole = begin("whole")
    with stopped(9):
        begin("stopped")
    resumed = begin("stopped")
    assert resumed.history == whole.history
    assert_same_variables(resumed.model.variables, whole.model.variables)
    ended = begin("stopped")
    assert_same_variables(ended.model.variables, whole.model.variables)
    name = "averaged" if recipe.ema_momentum else "last"
    last = load_model(tmp_path / "stopped" / f"{name}.keras")
    assert_same_variables(last.weights, whole.model.weights)
    assert last.predicts_values and last.class_names == NAMES


@pytest.mark.parametrize("distillation_token", [False, True])
def test_the_trained_model_predicts_values(distillation_token, data, tmp_path):
    recipe = recipe_of(steps=12)
    model = model_of(recipe, distillation_token=distillation_token)
    run = train(recipe, model, data, tmp_path / "run")
    (batch,) = load(data, "validation", 8, 10).as_numpy_iterator()
    predicted = to_numpy(model(batch[0]))
    r2 = sklearn.metrics.r2_score(batch[1], predicted)
    assert run.history[-1]["val_r2"] == pytest.approx(r2, abs=1e-3)
    _, deviation = json.loads((run.workdir / "run.json").read_text())["standardization"]
    errors = (predicted - batch[1]) / deviation
    assert run.history[-1]["val_loss"] == pytest.approx(np.mean(errors**2), rel=1e-3)


def test_a_new_head_predicts_the_mean(data):
    recipe = recipe_of()
    model, datasets = model_of(recipe), load_training_data(recipe, data)
    task = make_task(recipe, model, *datasets)
    task.finish(model)
    values = datasets[0].source.labels()
    predicted = to_numpy(model(np.zeros((1, 8, 8, 3), "float32")))[0]
    np.testing.assert_allclose(predicted, values.mean(axis=0), rtol=1e-6)


def test_a_model_of_values_goes_on_with_the_same_values(data):
    recipe = recipe_of()
    model, datasets = model_of(recipe), load_training_data(recipe, data)
    head = model.get_layer("head")
    head.kernel.assign(np.random.default_rng(0).normal(size=head.kernel.shape))
    image = np.ones((1, 8, 8, 3), "float32")
    make_task(recipe, model, *datasets).finish(model)
    before = to_numpy(model(image))
    task = make_task(recipe, model, *datasets)
    assert not model.predicts_values and np.abs(to_numpy(model(image))).max() < 10
    task.finish(model)
    np.testing.assert_allclose(to_numpy(model(image)), before, rtol=1e-5)


def test_a_column_of_equal_values_is_not_divided(data):
    file = pathlib.Path(data.removeprefix("csv:"))
    images = [line.split(",")[0] for line in file.read_text().splitlines()[1:]]
    equal = file.with_name("equal.csv")
    equal.write_text("\n".join(["image,five", *(f"{image},5" for image in images)]))
    recipe = recipe_of()
    datasets = load_training_data(recipe, f"csv:{equal}")
    task = make_task(recipe, small_model(recipe, num_classes=1), *datasets)
    assert task.metadata["standardization"] == [[5.0], [1.0]]
    _, values = next(task.train.batches().as_numpy_iterator())
    np.testing.assert_array_equal(values, 0)


def test_a_head_without_a_bias_is_refused(data):
    recipe = recipe_of()
    base = model_of(recipe, num_classes=0)
    head = keras.layers.Dense(2, use_bias=False, name="head")
    model = keras.Model(base.input, head(base.output))
    with pytest.raises(ValueError, match="must have a head with a bias"):
        make_task(recipe, model, *load_training_data(recipe, data))


def test_values_in_one_column_need_their_loss(data):
    recipe = recipe_of(loss="softmax")
    datasets = load_training_data(recipe, data, classes=("year",))
    with pytest.raises(ValueError, match="need `--loss regression`: they have values"):
        make_task(recipe, small_model(recipe, num_classes=1), *datasets)
