"""Options that are read off a model build it again."""

import inspect

import keras
import pytest

from keras_vit.models import replace_head, resize, vision_transformer
from keras_vit.models.introspection import options_of
from keras_vit.models.vit import POSITION_EMBEDDINGS
from tests.fixtures.tiny import TINY

# Every option, at a value that is not its default.
OPTIONS = {
    **TINY,
    "image_channels": 1,
    "pooling": "gap",
    "representation_size": 5,
    "classifier_activation": "softmax",
    "activation": "quick_gelu",
    "dropout": 0.1,
    "attention_dropout": 0.2,
    "stochastic_depth": 0.3,
    "class_token": True,
    "num_registers": 2,
    "position_embedding": "sincos2d",
    "qkv_bias": False,
    "qk_norm": True,
    "layer_scale": 0.5,
    "pre_norm": True,
    "fc_norm": True,
    "epsilon": 1e-5,
    "resnet_stages": (),
    "resnet_width": 32,
}


def test_every_option():
    parameters = inspect.signature(vision_transformer).parameters
    assert set(OPTIONS) == set(parameters) - {"name", "dtype", "remat"}
    changed = {**OPTIONS, "patch_size": (4, 4), "image_size": (16, 16)}
    assert options_of(vision_transformer(**OPTIONS)) == changed


@pytest.mark.parametrize("name", POSITION_EMBEDDINGS)
def test_position_embeddings(name):
    model = vision_transformer(**TINY, position_embedding=name)
    assert options_of(model)["position_embedding"] == name


@pytest.mark.parametrize("pooling", ["token", "map", None])
def test_poolings(pooling):
    options = {**TINY, "num_classes": 0, "pooling": pooling}
    described = options_of(vision_transformer(**options))
    assert described["pooling"] == pooling
    again = vision_transformer(**described)
    assert [v.path for v in again.weights] == [
        v.path for v in vision_transformer(**options).weights
    ]


def test_after_surgery():
    model = resize(replace_head(vision_transformer(**TINY, representation_size=5), 7), (8, 32))
    described = options_of(model)
    assert (described["num_classes"], described["representation_size"]) == (7, None)
    assert described["image_size"] == (8, 32)


def test_another_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="as the builders make it. Received: Sequential"):
        options_of(model)
