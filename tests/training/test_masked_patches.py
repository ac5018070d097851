"""Masked patch prediction from the dataset to the picture."""

import keras
import numpy as np
import pytest

from keras_vit.data import corruption as patches
from keras_vit.data import load, mask_patches
from keras_vit.inspection.figures.drawing import draw_masked_patches
from keras_vit.models import masked_patches, vision_transformer
from keras_vit.models.keras_files import load_model
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.training import recipe
from keras_vit.training.losses import masked_patch_loss
from keras_vit.training.starting_model import make_model
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import small_fit, small_model, small_recipe
from tests.fixtures.tiny import TINY

TARGETS = masked_patches.TARGETS


def batch_of_digits(target, batch_size):
    digits = load("digits", "test", image_size=16, batch_size=batch_size)
    return next(mask_patches(digits, 4, target).as_numpy_iterator())


def test_data_and_models_have_the_same_targets():
    assert patches.TARGETS == recipe.TARGETS == TARGETS
    assert patches.CELLS == masked_patches.CELLS


def test_loss_is_the_mean_over_corrupted_patches():
    rng = np.random.default_rng(0)
    weights = rng.permuted([[8, 8] + [0] * 14] * 4, axis=1).astype("float32")
    classes, logits = rng.integers(0, 512, (4, 16)), rng.normal(size=(4, 16, 512))
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    entropies = -np.log(np.take_along_axis(shares, classes[..., None], axis=-1))[..., 0]
    loss = masked_patch_loss("mean_color")(classes, logits, sample_weight=weights)
    np.testing.assert_allclose(to_numpy(loss), entropies[weights > 0].mean(), rtol=1e-5)
    cells = masked_patch_loss("downsized")(
        classes[..., None].repeat(16, -1),
        logits[:, :, None].repeat(16, 2),
        sample_weight=weights[..., None].repeat(16, -1),
    )
    np.testing.assert_allclose(to_numpy(cells), to_numpy(loss), rtol=1e-5)
    pixels, predicted = rng.normal(size=(2, 4, 16, 48))
    errors = ((pixels - predicted) ** 2).mean(axis=-1)
    loss = masked_patch_loss("pixels")(pixels, predicted, sample_weight=weights)
    np.testing.assert_allclose(to_numpy(loss), errors[weights > 0].mean(), rtol=1e-5)


@pytest.mark.slow
def test_a_few_steps_lower_the_loss(tmp_path):
    pytest.importorskip("matplotlib")
    target = "downsized"
    predictor = masked_patch_predictor(vision_transformer(**{**TINY, "depth": 1}), target)
    predictor.compile(
        keras.optimizers.Adam(0.01), loss=masked_patch_loss(target), weighted_metrics=["accuracy"]
    )
    # Made while TensorFlow traces the first step, its variables would have it traced twice.
    predictor.optimizer.build(predictor.trainable_variables)
    digits = load("digits", "test", image_size=16, batch_size=36, repeat=True)
    data = mask_patches(digits, 4, target)
    history = predictor.fit(data, epochs=2, steps_per_epoch=10, verbose=0, shuffle=False).history
    assert history["loss"][1] < 0.95 * history["loss"][0]
    # The background is black.
    assert history["accuracy"][1] > 0.2
    draw_masked_patches(predictor, batch_of_digits(target, batch_size=2), tmp_path / "masked.png")
    assert (tmp_path / "masked.png").stat().st_size > 5_000


@pytest.mark.slow
def test_the_picture_shows_what_the_predictor_says(tmp_path, monkeypatch):
    """A predictor that says white of all patches, of which the corrupted ones show it."""
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    shown = []
    monkeypatch.setattr(Axes, "imshow", lambda axis, image: shown.append(image))
    predictor = masked_patch_predictor(vision_transformer(**TINY), "pixels")
    predictor.get_layer("patch_head").bias.assign(np.ones(48))
    inputs, _, weights = batch = batch_of_digits("pixels", batch_size=2)
    draw_masked_patches(predictor, batch, tmp_path / "masked.png")
    images, seen, predicted, wanted = np.array(shown).reshape(4, 2, 16, 16, 3)
    np.testing.assert_allclose(images, (inputs["images"] + 1) / 2, atol=1e-6)
    np.testing.assert_array_equal(wanted, images)
    rows, columns = np.mgrid[:16, :16]
    patch = rows // 4 * 4 + columns // 4
    is_corrupted = weights[:, patch] > 0
    np.testing.assert_array_equal(predicted[is_corrupted], 1)
    np.testing.assert_array_equal(predicted[~is_corrupted], images[~is_corrupted])
    corruption = inputs["corruption"][:, patch]
    is_masked = corruption == -1
    assert is_masked.any()
    assert np.ptp(seen[is_masked], axis=0).max() == 0
    taken = images[np.arange(2)[:, None, None], corruption // 4 * 4 + rows % 4]
    taken = np.take_along_axis(taken, (corruption % 4 * 4 + columns % 4)[..., None, None], axis=3)
    np.testing.assert_allclose(seen[~is_masked], taken[..., 0, :][~is_masked], atol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="`target` must be one of"):
        masked_patch_loss("colour")


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
    averaged = load_model(tmp_path / "run" / "averaged.keras")
    for ours, theirs in zip(averaged.weights, model.weights, strict=True):
        # At the end the model has the averages.
        np.testing.assert_array_equal(to_numpy(ours.value), to_numpy(theirs.value))
