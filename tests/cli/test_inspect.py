"""The images of `keras-vit inspect`; the figures are tested with the report."""

import pathlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from keras_vit.cli.inspect import Inspect
from keras_vit.core.image_spec import ImageSpec
from keras_vit.serving.image_files import preprocess_files
from tests.fixtures.images import encode, random_image

SPEC = ImageSpec("bicubic", antialias=True)


def read(count, *images):
    return Inspect("m.keras", pathlib.Path("seen"), images=images, count=count).read_files(
        (16, 16), SPEC
    )


@pytest.mark.parametrize(
    ("count", "expected"),
    [(100, {"cat": 10, "dog": 10}), (4, {"cat": 2, "dog": 2}), (1, {"cat": 1})],
)
def test_folders_are_taken_evenly(count, expected, photos):
    found = {image.tobytes() for image in read(count, photos)}
    assert len(found) == sum(expected.values())
    for name, number in expected.items():
        of_class = {image.tobytes() for image in read(100, photos / name)}
        assert len(found & of_class) == number


def test_files_are_taken_as_they_are_named(photos):
    named = [photos / "dog" / name for name in ("1.jpg", "0.jpg")]
    expected = preprocess_files([file.read_bytes() for file in named], (16, 16), SPEC)
    np.testing.assert_array_equal(read(100, *named), expected)


def test_a_turned_photograph_is_decoded_as_the_model_does(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = tmp_path / "lying.jpg"
    Image.fromarray(random_image(20, 30)).save(lying, quality=95, exif=exif)
    upright = encode(np.asarray(ImageOps.exif_transpose(Image.open(lying))))
    np.testing.assert_array_equal(read(100, lying), preprocess_files([upright], (16, 16), SPEC))
