"""Images that are not scaled to [-1, 1] are refused."""

import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.models.image_model import check_images

RULE = r"^`images` must be scaled to \[-1, 1\], as `keras_vit.preprocess` does\. Received: "
PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PHOTOS)


def test_scaled_images_are_taken():
    # Bicubic interpolation goes a little further, and other normalizations too.
    for images in (SCALED * 2.7, np.zeros_like(SCALED), np.ones_like(SCALED), SCALED[:0]):
        check_images(images)


@pytest.mark.parametrize(
    ("images", "received"),
    [
        (PHOTOS, "of dtype uint8"),
        (PHOTOS.astype("int32"), "of dtype int32"),
        ({"images": PHOTOS}, "of dtype uint8"),
        (PHOTOS > 100, "of dtype bool"),
        (PHOTOS.astype("float32"), r"values from 0\.0 to 255\.0"),
        (np.where(PHOTOS > 254, np.nan, SCALED), "values from nan to nan"),
        (np.where(PHOTOS > 254, np.inf, SCALED), "to inf"),
    ],
    ids=["uint8", "int32", "dictionary", "bool", "float", "nan", "inf"],
)
def test_others_are_refused(images, received):
    with pytest.raises(ValueError, match=f"{RULE}.*{received}"):
        check_images(images)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors(dtype):
    check_images(ops.cast(SCALED, dtype))
    with pytest.raises(ValueError, match=f"{RULE}values from .* of dtype {dtype}"):
        check_images(ops.cast(SCALED * 100, dtype))


def test_tensors_of_integers():
    with pytest.raises(ValueError, match=f"{RULE}.*of dtype uint8"):
        check_images(ops.convert_to_tensor(PHOTOS))
