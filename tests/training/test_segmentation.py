"""Training of segmenters: the loss, and runs on small masks."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.training import RECIPES, train
from keras_vit.training.losses import PixelCrossEntropy
from keras_vit.training.starting_model import make_model
from keras_vit.training.tasks import _pixel_weights, make_task
from keras_vit.training.trainer import load_training_data
from tests.fixtures.masks import IGNORED, write_masks
from tests.fixtures.small_runs import small_model, small_recipe

SETTINGS = {
    **{"image_size": 24, "batch_size": 6, "steps": 60, "min_crop_area": None},
    **{"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 5},
}
VARIANT = "ViT_Ti16(patch_size=4, embedding_dim=32, depth=2, num_heads=2, mlp_dim=64)"


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 0.5)])
def test_loss_is_the_mean_of_weighted_pixels(weights):
    rng = np.random.default_rng(0)
    masks, logits = rng.integers(0, 3, (2, 4, 5)), rng.normal(size=(2, 4, 5, 3))
    masks[0, 0] = IGNORED
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    known = masks != IGNORED
    losses = -np.log(np.take_along_axis(shares[known], masks[known][:, None], -1))[:, 0]
    factors = np.ones(3) if weights is None else np.array(weights)
    expected = np.sum(losses * factors[masks[known]]) / masks.size
    loss = PixelCrossEntropy(weights)(masks, logits.astype("float32"))
    np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=1e-5)


def test_masks_without_classes_have_no_loss():
    masks, logits = np.full((1, 2, 2), IGNORED), np.ones((1, 2, 2, 3), "float32")
    assert float(PixelCrossEntropy()(masks, logits)) == 0


@pytest.mark.slow
def test_pixels_without_a_class_do_not_lower_the_loss_of_a_run(tmp_path):
    """One of 24 rows has none."""
    recipe = dataclasses.replace(RECIPES["segment"], **SETTINGS)
    data = load_training_data(recipe, f"masks:{write_masks(tmp_path)}")
    task = make_task(recipe, make_model(recipe, VARIANT, 3), *data)
    np.testing.assert_allclose(task.loss.class_weights, [24 / 23] * 3)


# Keras's MeanIoU asks JAX for int64, and says so.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")
@pytest.mark.parametrize("head", ["linear", "mask"])
def test_it_learns(head, tmp_path):
    data = f"masks:{write_masks(tmp_path / 'data', count=12)}"
    recipe = dataclasses.replace(
        RECIPES["segment"], **SETTINGS, segment_head=head, class_balance="weights"
    )
    run = train(recipe, VARIANT, data, tmp_path / "run")
    assert run.history[-1]["val_mean_iou"] > 0.6
    best = keras.models.load_model(tmp_path / "run" / "best.keras")
    assert best.class_names == ("background", "red", "blue")


@pytest.mark.slow
def test_wrong_data_and_models(tmp_path):
    recipe = dataclasses.replace(RECIPES["segment"], **SETTINGS)
    with pytest.raises(ValueError, match="needs a dataset with masks"):
        train(recipe, VARIANT, "digits", tmp_path / "run")
    data = f"masks:{write_masks(tmp_path / 'data')}"
    classes = small_recipe(image_size=24, batch_size=6)
    with pytest.raises(ValueError, match="need `--loss segmentation`: they have masks"):
        train(classes, small_model(classes), data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_of_classes():
    with pytest.raises(ValueError, match="`class_weights` must have a weight for each of the 3"):
        PixelCrossEntropy([1.0, 2.0])(np.zeros((1, 1, 1)), np.zeros((1, 1, 1, 3), "float32"))


def test_a_class_without_pixels_has_no_weight():
    weights = _pixel_weights(np.array([30, 0, 10]))
    np.testing.assert_allclose(weights, [40 / 3 / 30, 0, 40 / 3 / 10])
