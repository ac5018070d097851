"""Images that are not scaled to [-1, 1] are refused."""

import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.models.image_model import check_images

PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PHOTOS)


def test_scaled_images_are_taken():
    # Bicubic interpolation goes a little further, and other normalizations too.
    for images in (SCALED * 2.7, np.zeros_like(SCALED), np.ones_like(SCALED), SCALED[:0]):
        check_images(images)


@pytest.mark.parametrize(
    "images",
    [
        PHOTOS,
        {"images": PHOTOS},
        PHOTOS > 100,
        PHOTOS.astype("float32"),
        np.where(PHOTOS > 254, np.nan, SCALED),
        np.where(PHOTOS > 254, np.inf, SCALED),
    ],
    ids=["integers", "dictionary", "bool", "float", "nan", "inf"],
)
def test_images_that_are_not_scaled_are_refused(images):
    with pytest.raises(ValueError, match="`images` must be scaled"):
        check_images(images)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_tensors_that_are_not_scaled_are_refused(dtype):
    if dtype != "uint8":
        check_images(ops.cast(SCALED, dtype))
    with pytest.raises(ValueError, match="`images` must be scaled"):
        check_images(ops.cast(PHOTOS, dtype))
