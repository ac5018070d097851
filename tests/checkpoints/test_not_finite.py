"""Weights that are NaN or infinite are neither written nor loaded."""

import numpy as np
import pytest

from keras_vit import resnet
from keras_vit.checkpoints import (
    from_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from keras_vit.checkpoints.formats import written_formats
from keras_vit.models import vision_transformer
from keras_vit.models.keras_files import load_model
from tests.fixtures.checkpoint_files import saved, target, unchanged
from tests.fixtures.tiny import TINY

MESSAGE = "must have finite weights.* head/bias has 1 NaN or infinite values of 3"


def broken(value=np.nan, **options):
    """A model with a weight that is not finite."""
    model = vision_transformer(**{**TINY, **options})
    model.get_layer("head").bias.assign([0, value, 1])
    return model


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, "float32"), (-np.inf, "mixed_bfloat16")])
@pytest.mark.parametrize("format", written_formats())
def test_they_are_not_written(format, value, dtype, tmp_path):
    model = broken(value, activation="gelu", dtype=dtype)
    if format == "big_transfer":
        model = resnet((1,), 32, num_classes=3, image_size=32)
        model.get_layer("head").bias.assign([0, value, 1])
    path = target(tmp_path, format)
    with pytest.raises(ValueError, match=f"`model` {MESSAGE}"):
        save_checkpoint(model, path, format)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_keras_file_is_not_loaded(tmp_path):
    path = tmp_path / "model.keras"
    broken().save(path)
    with pytest.raises(ValueError, match=f"`model` {MESSAGE}"):
        load_model(path)
    with pytest.raises(ValueError, match="whose array 'head/bias' has NaN or infinity"):
        from_checkpoint(path)
    # Its weights without the head are those of any file.
    assert from_checkpoint(path, num_classes=2).output_shape == (None, 2)


def test_a_weights_file_is_not_loaded(tmp_path):
    path = saved(broken(), tmp_path / "model.weights.h5")
    model = vision_transformer(**TINY)
    before = model.get_weights()
    with pytest.raises(ValueError, match=f"`path` {MESSAGE}"):
        load_checkpoint(model, path)
    assert unchanged(model, before)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["model.npz", "model.keras"])
def test_numbers_that_the_dtype_does_not_hold_are_not_loaded(file, tmp_path):
    path, model = tmp_path / file, with_large_weights(1e5)
    save_checkpoint(model, path, "google") if path.suffix == ".npz" else model.save(path)
    message = "must hold numbers that are finite in float16"
    with pytest.raises(ValueError, match=message):
        from_checkpoint(path, dtype="float16")
    with pytest.raises(ValueError, match=message):
        load_checkpoint(vision_transformer(**TINY, dtype="float16"), path)
    from_checkpoint(path, dtype="bfloat16")


def test_numbers_that_float32_does_not_hold_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="must have finite weights in float32"):
        save_checkpoint(with_large_weights(1e300, dtype="float64"), tmp_path / "m.npz", "google")
    assert not list(tmp_path.iterdir())


def with_large_weights(value, **options):
    model = vision_transformer(**TINY, **options)
    model.get_layer("encoder_norm").beta.assign(np.full(8, value))
    return model
