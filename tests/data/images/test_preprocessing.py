"""Named preprocessing, and changes of it."""

import numpy as np
import pytest

from keras_vit.data import Preprocessing, load
from keras_vit.data.images.preprocessing import find_preprocessing
from tests.fixtures.images import assert_same

DIGITS = {"name": "digits", "split": "test", "image_size": 128, "batch_size": 5}
HYPER_RULE = {"random_crop_from": 160, "flip": "always"}


def first(**options):
    return list(load(**DIGITS, **options).take(1).as_numpy_iterator())


@pytest.mark.parametrize(
    ("preset", "training", "image_size", "settings"),
    [
        ("original", True, (96, 128), {"min_crop_area": 0.05, "flip": True}),
        ("original", False, 17, {}),
        ("big_vision", True, 48, {"min_crop_area": 0.05, "flip": True}),
        ("big_vision", False, (384, 384), {"central_crop_from": 448}),
        ("hyper_rule", True, 128, HYPER_RULE),
        ("hyper_rule", False, 480, {}),
    ],
)
def test_presets(preset, training, image_size, settings):
    assert find_preprocessing(preset, training, image_size) == Preprocessing(**settings)


@pytest.mark.slow
def test_an_object_a_preset_and_single_keywords_give_the_same_batches():
    options = {"training": True, "seed": 3}
    expected = first(**options, **HYPER_RULE)
    assert_same(first(**options, preprocessing=Preprocessing(**HYPER_RULE)), expected)
    assert_same(first(**options, preprocessing="hyper_rule"), expected)
    changed = first(**options, preprocessing="hyper_rule", flip=False)
    np.testing.assert_array_equal(changed[0][0][:, :, ::-1], expected[0][0])


@pytest.mark.parametrize(
    ("preset", "message"),
    [("vit", "must be one of original"), ("big_vision", "published for images of 224 and 384")],
)
def test_presets_that_there_are_not(preset, message):
    with pytest.raises(ValueError, match=message):
        load(**DIGITS, preprocessing=preset)
