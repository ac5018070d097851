"""Classes of a model and of a dataset, compared by their names."""

import contextlib
import re

import pytest

from keras_vit.core.imagenet import imagenet_class_names, read_labels
from keras_vit.evaluation.class_names import check_same_classes

WNIDS = ["n01440764", "n01443537"]
SYNSETS = [synset for synset, _ in read_labels(1000)]
WORDS = imagenet_class_names(1000)


@pytest.mark.parametrize(
    ("model_names", "data_names", "must_be_equal", "message"),
    [
        (["cat", "dog"], ["cat", "dog"], True, None),
        (["cat", "dog"], ["Cat", "Dog"], True, "must have the model's classes"),
        (["dog", "cat"], ["cat", "dog"], False, "must have the model's classes"),
        (["cat", "dog"], ["ant", "cat"], False, "must have the model's classes"),
        (["cat", "dog"], ["cats", "dogs"], False, "different names .*'cat' is 'cats'"),
        (["tench", "goldfish"], WNIDS, False, None),
        (SYNSETS, WORDS, True, None),
        (WORDS, SYNSETS, True, None),
        (WORDS, SYNSETS[1:] + SYNSETS[:1], True, "must have the model's classes"),
        (["cat", "dog"], ["ant", "cat", "dog"], True, "must .* 3 classes; `--classes cat dog` tak"),
        (["cat", "dog"], ["ant", "bee", "cat"], False, "must have the model's 2 .* 3 classes$"),
    ],
)
def test_classes_of_model_and_data(model_names, data_names, must_be_equal, message, caplog):
    is_error = message is not None and message.startswith("must")
    expected = pytest.raises(ValueError, match=message) if is_error else contextlib.nullcontext()
    with expected:
        check_same_classes(model_names, data_names, must_be_equal)
    if message is None or is_error:
        assert not caplog.messages
    else:
        assert re.search(message, caplog.text)
