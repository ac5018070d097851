"""Class names that look alike are refused."""

import pytest

from keras_vit.core.class_names import check_class_names

ALIKE = ["cafe\u0301", "café ", "ca\u200bfé", "\ufeffcafé", "\uff43afé"]
INVISIBLE = "\x07\xad\u034f\u115f\u1160\u17b4\u180b\u180e\u2800\u3164\ufe0f\uffa0\U000e0100"
WRONG = [
    (["cat"], "at least two classes"),
    (["cat", "cat"], "be there once. Received: 'cat' and 'cat'"),
    (["cat", "CAT"], "differ by more than case"),
    (["straße", "STRASSE"], "differ by more than case"),
    (["cat", ""], "not empty"),
    (["cat", "\t"], "not empty"),
    (["cat", "d\nog"], "of one line"),
    (["cat", "dog\u2028"], "of one line"),
    (["cat", "dog\udcff"], "UTF-8"),
    (["cat", 1], "must be strings"),
    (["cat", "\u200b"], "not empty"),
    ("cat", "must be a list"),
    ({"dog": 1, "cat": 0}, "must be a list or tuple .* Received: dict"),
    ({"cat", "dog"}, "must be a list or tuple .* Received: set"),
    *((["café", name], "not look alike") for name in ALIKE),
    *((["cat", f"ca{letter}t"], "not look alike") for letter in INVISIBLE),
    (["cat", INVISIBLE], "not empty"),
    (["ice cream", "ice  cream"], "not look alike"),
    (["ice cream", "ice\u3000\u200b cream"], "not look alike"),
    # Cyrillic, Greek, and two mixtures of Cyrillic and Latin letters.
    (["cat", "\u0441\u0430t"], "not look alike"),
    (["OX", "\u039f\u03a7"], "not look alike"),
    (["c\u0430t", "\u0441at"], "not look alike"),
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
