"""Names of classes, and of arguments."""

import pytest

import keras_vit
from keras_vit.core.text import check_class_names

WRONG = [
    (["cat"], "at least two classes"),
    (["cat", "dog", "CAT"], "differ by more than case and spaces"),
    (["straße", "STRASSE"], "differ by more than case"),
    (["ice cream", "ice  cream "], "differ by more than case"),
    (["cat", "\t"], "not empty"),
    (["cat", "d\nog"], "of one line"),
    (["cat", "dog\u2028"], "of one line"),
    (["cat", "dog\udcff"], "UTF-8"),
    (["cat", 1], "must be strings"),
    ("cat", "must be a list"),
    # Their order is not that of the outputs.
    ({"cat", "dog"}, "must be a list"),
]


@pytest.mark.parametrize(("names", "message"), WRONG)
def test_names_that_cannot_be_written_or_told_apart_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        check_class_names(names)


@pytest.mark.parametrize(
    "names",
    [
        ["кот", "вор", "рот", "нос", "сом", "ёж", "еж", "сор", "ВОЛ", "Ворона"],  # noqa: RUF001
        ["γάτα", "σκύλος", "άλογο", "ίππος"],
        ["고양이", "개", "猫", "犬", "❤", "cat", "cat dog", "catdog"],
    ],
)
def test_names_of_other_scripts_are_taken(names):
    assert check_class_names(names) == tuple(names)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="the nearest one is `image_size`"):
        keras_vit.vision_transformer(img_size=3)
