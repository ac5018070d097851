"""The layout that a model is written in."""

import pytest

from keras_vit import resnet
from keras_vit.checkpoints.save import format_for
from keras_vit.models import vision_transformer
from tests.fixtures.models import TOWERS
from tests.fixtures.tiny import TINY


@pytest.mark.parametrize(
    ("model", "suffix", "expected"),
    [
        ({}, ".npz", "google"),
        ({"pooling": "map"}, ".npz", "big_vision"),
        ({"num_registers": 1}, ".npz", "google"),
        ({"preactivation": True}, ".npz", "big_transfer"),
        ({"preactivation": False}, ".npz", "big_vision"),
        ({}, ".safetensors", "timm"),
        ({"representation_size": 4, "num_classes": 0}, ".safetensors", "huggingface"),
        (TOWERS["dinov2_giant"], ".safetensors", "huggingface_dinov2_with_registers"),
        ({**TOWERS["dinov3"], "num_classes": 0}, ".safetensors", "timm_eva"),
    ],
    ids=str,
)
def test_the_layout_for_a_file(model, suffix, expected):
    if "preactivation" in model:
        model = resnet((1,), 32, num_classes=2, image_size=32, **model)
    else:
        model = vision_transformer(**{**TINY, **model})
    assert format_for(model, suffix) == expected


def test_the_layout_that_the_model_was_read_from_is_preferred():
    model = vision_transformer(**{**TINY, **TOWERS["dinov3"], "num_classes": 0})
    model.layout = "huggingface_dinov3_vit"
    assert format_for(model, ".safetensors") == "huggingface_dinov3_vit"
