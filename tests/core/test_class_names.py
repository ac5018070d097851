"""Class names: a list of lines that differ."""

import numpy as np
import pytest

from keras_vit.core.class_names import check_class_names

WRONG = [
    (["cat"], "at least two classes"),
    (["cat", "cat"], "differ by more than case. Received: 'cat' and 'cat'"),
    (["cat", "CAT "], "differ by more than case"),
    (["straße", "STRASSE"], "differ by more than case"),
    (["cat", ""], "not empty"),
    (["cat", "\t"], "not empty"),
    (["cat", "d\nog"], "of one line"),
    (["cat", "dog\u2028"], "of one line"),
    (["cat", "dog\udcff"], "UTF-8"),
    (["cat", 1], "must be strings"),
    (["cat", b"dog"], "must be strings"),
    ("cat", "must be a list"),
    ({"dog": 1, "cat": 0}, "must be a list or tuple .* Received: dict"),
    ({"cat", "dog"}, "must be a list or tuple .* Received: set"),
]


@pytest.mark.parametrize(("names", "message"), WRONG)
def test_wrong_names(names, message):
    with pytest.raises(ValueError, match=message):
        check_class_names(names)


def test_a_wrong_number_of_names():
    with pytest.raises(ValueError, match="names 3 classes"):
        check_class_names(["cat", "dog"], num_classes=3)


@pytest.mark.parametrize("names", [["кот", "猫", "고양이", "❤"], np.array(["cat", "cat dog"])])
def test_names_of_any_script(names):
    assert check_class_names(names) == tuple(names)
