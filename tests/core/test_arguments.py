"""Errors of arguments and names."""

import operator
import re

import pytest

import keras_vit
from keras_vit.core.arguments import check_options


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("input_shape", "image_size"),
        ("img_size", "image_size"),
        ("classes", "num_classes"),
        ("num_labels", "num_classes"),
        ("drop_rate", "dropout"),
        ("hidden_dropout_prob", "dropout"),
        ("num_clases", "num_classes"),
    ],
)
def test_names_of_other_libraries_are_known(name, nearest):
    # Some have a more similar name.
    others = ("drop_path", "class_names", "num_layers", "img_scale", "input_scale", "hidden_dim")
    known = ("num_classes", "image_size", "dropout", *others)
    with pytest.raises(TypeError, match=f"the nearest one is `{nearest}`. Received: {name}=3$"):
        check_options("ViT_Ti16", {name: 3}, known)


def test_a_name_elsewhere_is_not_offered_where_there_is_no_such_argument():
    with pytest.raises(TypeError, match="the nearest one is `name`"):
        check_options("load", {"num_labels": 3}, ("name", "split"))


@pytest.mark.parametrize(
    ("name", "options", "nearest"),
    [
        ("vision_transformer", {"img_size": 3}, "image_size"),
        ("resnet", {"num_labels": 3}, "num_classes"),
        ("replace_head", {"num_labels": 3}, "num_classes"),
        ("resize", {"img_size": 3}, "image_size"),
        ("enable_lora", {"r": 4}, "rank"),
    ],
)
def test_functions_name_the_nearest_argument(name, options, nearest):
    with pytest.raises(TypeError, match=f"`{name}` has no argument.*is `{nearest}`. Received"):
        getattr(keras_vit, name)(**options)


@pytest.mark.parametrize("name", keras_vit.ELSEWHERE)
def test_errors_of_names_elsewhere_say_what_is_used_here(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': use .*`keras") as raised:
        getattr(keras_vit, name)
    for used in re.findall(r"`keras_vit[.]([^`]*)`", str(raised.value)):
        assert callable(operator.attrgetter(used)(keras_vit))


def test_activation_softmax_is_refused():
    with pytest.raises(ValueError, match="`classifier_activation` is that of the head"):
        keras_vit.ViT_Ti16(num_classes=2, image_size=16, activation="softmax")
