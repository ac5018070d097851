"""Errors of arguments and names."""

import pytest

import keras_vit


@pytest.mark.parametrize(
    ("name", "option", "nearest"),
    [
        ("vision_transformer", "img_size", "image_size"),
        ("resnet", "num_clases", "num_classes"),
        ("ViT_Ti16", "stochastic_dept", "stochastic_depth"),
    ],
)
def test_an_unknown_option_gets_the_nearest_name(name, option, nearest):
    message = f"has no argument .*the nearest one is `{nearest}`. Received: {option}=3$"
    with pytest.raises(TypeError, match=message):
        getattr(keras_vit, name)(**{option: 3})
