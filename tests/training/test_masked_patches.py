"""Masked patch prediction from the dataset to the picture."""

import numpy as np
import pytest

from keras_vit.data import corruption as patches
from keras_vit.data import load, mask_patches
from keras_vit.inspection.figures.drawing import draw_masked_patches
from keras_vit.models import masked_patches, vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.training import recipe
from keras_vit.training.starting_model import make_model
from tests.fixtures.small_runs import small_fit, small_model, small_recipe
from tests.fixtures.tiny import TINY


def test_data_and_models_have_the_same_targets():
    assert patches.TARGETS == recipe.TARGETS == masked_patches.TARGETS
    assert patches.CELLS == masked_patches.CELLS


@pytest.mark.slow
def test_the_picture_shows_what_the_predictor_says(tmp_path, monkeypatch):
    """A predictor that says white of all patches, of which the corrupted ones show it."""
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    shown = []
    monkeypatch.setattr(Axes, "imshow", lambda axis, image: shown.append(image))
    predictor = masked_patch_predictor(vision_transformer(**TINY), "pixels")
    predictor.get_layer("patch_head").bias.assign(np.ones(48))
    digits = load("digits", "test", image_size=16, batch_size=2)
    inputs, _, weights = batch = next(mask_patches(digits, 4, "pixels").as_numpy_iterator())
    draw_masked_patches(predictor, batch, tmp_path / "masked.png")
    images, seen, predicted, wanted = np.array(shown).reshape(4, 2, 16, 16, 3)
    np.testing.assert_allclose(images, (inputs["images"] + 1) / 2, atol=1e-6)
    np.testing.assert_array_equal(wanted, images)
    rows, columns = np.mgrid[:16, :16] // 4
    is_corrupted = (weights > 0)[:, 4 * rows + columns]
    np.testing.assert_array_equal(predicted[is_corrupted], 1)
    np.testing.assert_array_equal(predicted[~is_corrupted], images[~is_corrupted])
    is_masked = (inputs["corruption"] == -1)[:, 4 * rows + columns]
    assert np.ptp(seen[is_masked], axis=0).max() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["mean_color", pytest.param("pixels", marks=pytest.mark.examples)]
)
def test_a_model_trained_on_masked_patches_is_fine_tuned(target, tmp_path):
    recipe = small_recipe(loss=target, ema_momentum=0.5, learning_rate=0.3)
    model = small_model(recipe, num_classes=0)
    history = small_fit(tmp_path / "run", recipe, model)
    assert ("val_accuracy" in history[-1]) == (target == "mean_color")
    assert history[-1]["val_loss"] < history[0]["loss"]
    saved = {path.name for path in (tmp_path / "run").glob("*.keras")}
    assert saved == {"best.keras", "last.keras", "averaged.keras", "predictor.keras"}
    tuned = make_model(small_recipe(), tmp_path / "run", num_classes=3)
    assert tuned.output_shape == (None, 3)
