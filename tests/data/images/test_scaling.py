"""Pixels that are scaled to [-1, 1]: their range, and images that were scaled before."""

import re

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_vit
from keras_vit.data.images.geometry import ImageMaker, evaluation_image
from keras_vit.data.images.preprocessing import Preprocessing
from tests.fixtures.images import encode

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")
PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PHOTOS)


@pytest.mark.parametrize(
    "images",
    [PHOTOS / 255, SCALED, ops.convert_to_tensor(SCALED), [0.5, 1.0], SCALED * 2.5 - 0.3],
    ids=["0 to 1", "-1 to 1", "tensor", "list", "means and deviations"],
)
def test_preprocessing_twice_is_warned_about_each_time(images, caplog):
    for _ in range(2):
        caplog.clear()
        keras_vit.preprocess(images)
        (message,) = caplog.messages
        assert re.match("`preprocess` takes .*, which were probably scaled before$", message)


@pytest.mark.parametrize(
    ("images", "received"),
    [
        (PHOTOS.astype("uint16") * 257, "values from 0.0 to 65535.0"),
        (np.array([-3, 5]), "values from -3.0 to 5.0"),
        (np.array([-64.0, 319.0]), "values from -64.0 to 319.0"),
        ([0, 300], "values from 0.0 to 300.0"),
        (np.array([0, np.nan]), "values from nan to nan"),
        (np.array([0, np.inf], "float32"), "values from 0.0 to inf"),
        (PHOTOS * 257.0, "values from 0.0 to 65535.0"),
        (ops.convert_to_tensor([0.0, 400.0]), "values from 0.0 to 400.0"),
        (PHOTOS > 100, "dtype bool"),
        (ops.convert_to_tensor(PHOTOS > 100), "dtype .*bool"),
        (["a"], "dtype str"),
        (None, "dtype object"),
    ],
)
def test_preprocess_refuses_invalid_values(images, received):
    with pytest.raises(ValueError, match=f"^`images` must be .*255.* Received: {received}"):
        keras_vit.preprocess(images)


def test_preprocess_names_the_range_of_floats():
    keras_vit.preprocess(np.array([-63.75, 318.75]))
    with pytest.raises(ValueError, match=r"floating-point values in \[-63\.75, 318\.75\]\. Rec"):
        keras_vit.preprocess(np.array([-63.76, 0.0]))


def test_preprocessing_of_dark_images(caplog):
    for images in (np.zeros(3, "float32"), np.array([0, 1], "uint8"), [0, 1], np.array([])):
        keras_vit.preprocess(images)
    # Interpolation overshoots.
    for images in (PHOTOS.astype(">f4") * 1.2 - 20, np.array([-1.0, 8.0])):
        keras_vit.preprocess(images)
    assert not caplog.messages


def test_decoded_files_are_not_suspected(caplog):
    """A picture of almost black pixels was not scaled before."""
    pixels = np.ones((4, 4, 3), "uint8")
    evaluation_image(pixels, (4, 4))
    ImageMaker(4, Preprocessing()).make()(encode(pixels), (0, 0))
    assert not caplog.messages


def test_preprocessing_in_a_traced_function(caplog):
    dataset = tf.data.Dataset.from_tensor_slices(PHOTOS)
    floats = dataset.map(lambda image: tf.cast(image, "float32") / 255)
    assert len(list(floats.map(keras_vit.preprocess))) == 4
    assert not caplog.messages
    with pytest.raises(ValueError, match="dtype bool"):
        dataset.map(lambda image: keras_vit.preprocess(image > 100))
