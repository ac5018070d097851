"""Damaged images: pixels of the size in the header, or an error of TensorFlow's."""

import io

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from PIL import Image

from keras_vit.core.image_spec import MAX_PIXELS
from keras_vit.data.images.decoding import IN_GRAPH, declared_size, decode
from keras_vit.data.sources.masks import read_mask
from tests.fixtures.images import encode, random_image
from tests.fuzz.damage import FUZZ, damaged

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
SOUND = {name: encode(random_image(6, 9), name) for name in FORMATS}
ARRAY = io.BytesIO()
np.save(ARRAY, random_image(6, 9))
SOUND["npy"] = ARRAY.getvalue()


def assert_decoded_or_refused(contents):
    try:
        pixels = decode(tf.constant(contents)).numpy()
    except tf.errors.InvalidArgumentError as error:
        assert str(error)
        return
    assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[-1] == 3
    assert pixels.size // 3 <= MAX_PIXELS
    if contents.startswith(IN_GRAPH):
        assert tuple(declared_size(tf.constant(contents)).numpy()) == pixels.shape[:2]


@pytest.mark.parametrize("kind", SOUND)
def test_damaged_images(kind):
    @FUZZ
    @given(contents=damaged([SOUND[kind]]))
    def check(contents):
        assert_decoded_or_refused(contents)

    check()


def png(array, mode="L", **options):
    buffer = io.BytesIO()
    Image.fromarray(array, mode).save(buffer, "PNG", **options)
    return buffer.getvalue()


MASK = np.arange(54, dtype="uint8").reshape(6, 9) % 3


@FUZZ
@given(contents=damaged([png(MASK), png(MASK, bits=2), png(MASK, bits=4)]))
def test_damaged_masks(contents):
    try:
        mask = read_mask(contents, (6, 9), 3)
    except ValueError as error:
        assert str(error)
    else:
        assert mask.shape == (6, 9) and set(np.unique(mask)) <= {0, 1, 2, 255}
