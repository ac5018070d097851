"""Errors of arguments."""

import pytest

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
