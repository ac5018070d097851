"""Training of segmenters on small masks."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_vit.training import RECIPES, train
from keras_vit.training.starting_model import make_model
from keras_vit.training.tasks import _pixel_weights, make_task
from keras_vit.training.trainer import load_training_data
from tests.fixtures.masks import write_masks

SETTINGS = {
    **{"image_size": 24, "batch_size": 6, "steps": 60, "min_crop_area": None},
    **{"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 5},
}
VARIANT = "ViT_Ti16(patch_size=4, embedding_dim=32, depth=2, num_heads=2, mlp_dim=64)"


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
def test_a_segmenter_learns(head, tmp_path):
    data = f"masks:{write_masks(tmp_path / 'data', count=12)}"
    recipe = dataclasses.replace(
        RECIPES["segment"], **SETTINGS, segment_head=head, class_balance="weights"
    )
    run = train(recipe, VARIANT, data, tmp_path / "run")
    assert run.history[-1]["val_mean_iou"] > 0.6
    best = keras.models.load_model(tmp_path / "run" / "best.keras")
    assert best.class_names == ("background", "red", "blue")


def test_a_class_without_pixels_has_no_weight():
    weights = _pixel_weights(np.array([30, 0, 10]))
    np.testing.assert_allclose(weights, [40 / 3 / 30, 0, 40 / 3 / 10])
