"""Weights that are NaN or infinite are neither written nor loaded."""

import keras
import numpy as np
import pytest

from keras_vit import resnet
from keras_vit.checkpoints import (
    from_checkpoint,
    inspect_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from keras_vit.checkpoints.formats import written_formats
from keras_vit.models import vision_transformer
from keras_vit.models.keras_files import check_finite, load_model
from tests.fixtures.checkpoint_files import saved, target, unchanged
from tests.fixtures.tiny import TINY

MESSAGE = (
    r"must have finite weights( in float32)?\. "
    "Received: .* whose head/bias has 1 NaN or infinite values of 3"
)


def broken(value=np.nan, **options):
    """A model with a weight that is not finite."""
    model = vision_transformer(**{**TINY, **options})
    model.get_layer("head").bias.assign([0, value, 1])
    return model


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format", written_formats())
def test_they_are_not_written(format, value, tmp_path):
    model = broken(value, activation="gelu")
    if format == "big_transfer":
        model = resnet((1,), 32, num_classes=3, image_size=32)
        model.get_layer("head").bias.assign([0, value, 1])
    path = target(tmp_path, format)
    with pytest.raises(ValueError, match=f"`model` {MESSAGE}"):
        save_checkpoint(model, path, format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "bfloat16", "float16"])
def test_every_dtype(dtype):
    model = vision_transformer(**TINY, dtype=dtype)
    check_finite(model)
    kernel = model.get_layer("block_1").mlp.dense_0.kernel
    values = np.zeros(kernel.shape, "float32")
    values[0, :2] = np.inf, np.nan
    kernel.assign(values)
    message = "block_1/mlp/dense_0/kernel has 2 NaN or infinite values of 128"
    with pytest.raises(ValueError, match=message):
        check_finite(model)
    model.get_layer("block_1").mlp.dense_0.bias.assign(np.full(16, np.nan))
    with pytest.raises(ValueError, match=r"of 128 \(1 more variables have such values too\)"):
        check_finite(model)


def test_integers_are_finite():
    layer = keras.layers.Dense(4)
    model = keras.Sequential([keras.Input((8,)), layer])
    layer.quantize("int8")
    assert "int8" in {variable.dtype for variable in model.weights}
    check_finite(model)


@pytest.mark.slow
def test_a_keras_file_is_not_loaded(tmp_path):
    path = tmp_path / "model.keras"
    broken().save(path)
    with pytest.raises(ValueError, match=f"`model` {MESSAGE}"):
        load_model(path)
    # Its summary, and its weights without the head, are those of any file.
    assert inspect_checkpoint(path).options.num_classes == 3
    assert from_checkpoint(path, num_classes=2).output_shape == (None, 2)
    with pytest.raises(ValueError, match="whose array 'head/bias' has NaN or infinity"):
        from_checkpoint(path)
    # Keras itself still loads it.
    assert np.isnan(keras.models.load_model(path).get_layer("head").get_weights()[1]).sum() == 1


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
    message = "`path` must hold numbers that are finite in float16. .* encoder_norm/beta are not"
    with pytest.raises(ValueError, match=message):
        from_checkpoint(path, dtype="float16")
    with pytest.raises(ValueError, match=message):
        load_checkpoint(vision_transformer(**TINY, dtype="float16"), path)
    from_checkpoint(path, dtype="bfloat16")


def test_numbers_that_float32_does_not_hold_are_not_written(tmp_path):
    message = "must have finite weights in float32. .* whose encoder_norm/beta has 8 NaN"
    with pytest.raises(ValueError, match=message):
        save_checkpoint(with_large_weights(1e300, dtype="float64"), tmp_path / "m.npz", "google")
    assert not list(tmp_path.iterdir())


def with_large_weights(value, **options):
    model = vision_transformer(**TINY, **options)
    model.get_layer("encoder_norm").beta.assign(np.full(8, value))
    return model
