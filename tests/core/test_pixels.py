"""Images that are not scaled to [-1, 1]: refused, or warned about."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.core.pixels import check_pixels
from keras_vit.layers import PatchEmbedding, StandardizedConv2D

RULE = r"must be scaled to \[-1, 1\], as `keras_vit.preprocess` does\. Received: "
PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PHOTOS)


def test_what_may_be_wrong_is_warned_about_each_time(caplog):
    for _ in range(2):
        check_pixels(PHOTOS / 255)
    assert len(caplog.messages) == 2


def test_values_that_may_be_right_are_not_warned_about(caplog):
    # Bicubic interpolation goes a little further.
    for images in (SCALED * 1.3, np.zeros_like(SCALED), np.ones_like(SCALED), SCALED[:0]):
        check_pixels(images)
    assert not caplog.messages


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors(dtype):
    check_pixels(ops.cast(SCALED, dtype))
    with pytest.raises(ValueError, match=f"{RULE}values from"):
        check_pixels(ops.cast(SCALED * 100, dtype))


def test_tensors_of_integers():
    with pytest.raises(ValueError, match=f"{RULE}images of dtype uint8"):
        check_pixels(ops.convert_to_tensor(PHOTOS))


@pytest.mark.parametrize(
    "layer", [lambda: PatchEmbedding(8, 4), lambda: StandardizedConv2D(8, 3)], ids=["patch", "conv"]
)
def test_layers_refuse_integers(layer):
    with pytest.raises(ValueError, match="must be scaled to .*preprocess.* of dtype uint8"):
        layer()(PHOTOS)
    images = keras.Input((16, 16, 3), dtype="uint8")
    model = keras.Model(images, layer()(images))
    with pytest.raises(ValueError, match="must be scaled to .*preprocess.* of dtype uint8"):
        model.predict(PHOTOS, verbose=0)
