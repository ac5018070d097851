"""The images of `keras-vit inspect`; the figures are tested with the report."""

import pathlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from keras_vit.cli.inspect import Inspect
from keras_vit.core.images import ImageSpec
from keras_vit.serving.encoded import preprocess_files
from tests.fixtures.images import encode, random_image


@pytest.mark.parametrize(
    ("count", "expected"),
    [(100, {"cat": 10, "dog": 10}), (4, {"cat": 2, "dog": 2}), (1, {"cat": 1})],
)
def test_folders_are_taken_evenly(count, expected, photos):
    files = Inspect("m.keras", pathlib.Path("seen"), images=(photos,), count=count)._files()
    assert len({*files}) == len(files) == sum(expected.values())
    classes = [file.parent.name for file in files]
    assert {name: classes.count(name) for name in classes} == expected


def test_files_are_taken_as_they_are_named(photos):
    named = tuple(photos / "dog" / name for name in ("1.jpg", "0.jpg"))
    assert tuple(Inspect("m.keras", pathlib.Path("seen"), images=named)._files()) == named


def test_a_turned_photograph_is_decoded_as_the_model_does(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = tmp_path / "lying.jpg"
    Image.fromarray(random_image(20, 30)).save(lying, quality=95, exif=exif)
    upright = encode(np.asarray(ImageOps.exif_transpose(Image.open(lying))))
    image_spec = ImageSpec("bicubic", antialias=True)
    images = Inspect("m.keras", pathlib.Path("seen"), images=(lying,))._read((16, 16), image_spec)
    np.testing.assert_array_equal(images, preprocess_files([upright], (16, 16), image_spec))
