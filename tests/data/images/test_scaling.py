"""Pixels that are scaled to [-1, 1]: their range, and images that were scaled before."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_vit

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")
PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PHOTOS)


@pytest.mark.parametrize("kind", [np.asarray, ops.convert_to_tensor, list])
def test_pixels_are_scaled(kind):
    scaled = ops.convert_to_numpy(keras_vit.preprocess(kind(PHOTOS[0, 0, 0])))
    np.testing.assert_array_equal(scaled, (PHOTOS[0, 0, 0].astype("float32") - 127.5) / 127.5)
    assert scaled.dtype == "float32"


@pytest.mark.parametrize(
    "images",
    [PHOTOS / 255, SCALED, ops.convert_to_tensor(SCALED), [0.5, 1.0], SCALED * 2.5 - 0.3],
    ids=["0 to 1", "-1 to 1", "tensor", "list", "means and deviations"],
)
def test_preprocessing_twice_is_warned_about_each_time(images, caplog):
    for _ in range(2):
        caplog.clear()
        keras_vit.preprocess(images)
        assert "which were probably scaled before" in caplog.text


@pytest.mark.parametrize(
    "images",
    [
        PHOTOS.astype("uint16") * 257,
        np.array([-64.0, 319.0]),
        [0, 300],
        np.array([0, np.nan]),
        ops.convert_to_tensor([0.0, 400.0]),
        PHOTOS > 100,
        None,
    ],
    ids=["16 bits", "floats", "list", "nan", "tensor", "bool", "none"],
)
def test_preprocess_refuses_what_is_no_image(images):
    with pytest.raises(ValueError, match="^`images` must be"):
        keras_vit.preprocess(images)


def test_preprocessing_of_dark_images(caplog):
    for images in (np.zeros(3, "float32"), np.array([0, 1], "uint8"), [0, 1], np.array([])):
        keras_vit.preprocess(images)
    # Interpolation overshoots.
    for images in (PHOTOS.astype(">f4") * 1.2 - 20, np.array([-1.0, 8.0])):
        keras_vit.preprocess(images)
    assert not caplog.messages


def test_preprocessing_in_a_traced_function(caplog):
    dataset = tf.data.Dataset.from_tensor_slices(PHOTOS)
    floats = dataset.map(lambda image: tf.cast(image, "float32") / 255)
    assert len(list(floats.map(keras_vit.preprocess))) == 4
    assert not caplog.messages
