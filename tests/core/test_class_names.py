"""Class names that are wrong are refused."""

import pytest

from keras_vit.core.text import check_class_names

WRONG = [
    (["cat"], "at least two classes"),
    (["cat", "cat"], "differ by more than case and spaces. Received: 'cat' and 'cat'"),
    (["cat", "dog", "CAT"], "differ by more than case and spaces. Received: 'cat' and 'CAT'"),
    (["straße", "STRASSE"], "differ by more than case"),
    (["ice cream", "ice  cream "], "differ by more than case"),
    (["cat", ""], "not empty"),
    (["cat", "\t"], "not empty"),
    (["cat", "d\nog"], "of one line"),
    (["cat", "dog\n"], "of one line"),
    (["cat", "dog\u2028"], "of one line"),
    (["cat", "dog\udcff"], "UTF-8"),
    (["cat", 1], "must be strings"),
    ("cat", "must be a list"),
    ({"dog": 1, "cat": 0}, "must be a list or tuple .* Received: dict"),
    ({"cat", "dog"}, "must be a list or tuple .* Received: set"),
]


@pytest.mark.parametrize(("names", "message"), WRONG)
def test_wrong_names(names, message):
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
def test_names_of_other_scripts(names):
    assert check_class_names(names) == tuple(names)
