"""The options of models: the arguments of builders, and what files record."""

import dataclasses
import inspect
import json

import pytest

from keras_vit.models import ResNetOptions, VitOptions, vision_transformer
from keras_vit.models.options import POSITION_EMBEDDINGS, options_from_config
from keras_vit.models.resnet import resnet
from keras_vit.models.vit import build_model
from tests.fixtures.tiny import TINY
from tests.models.test_resnet import BIT, HYBRID

# Every option, at a value that is not its default unless another option forbids that.
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
    "patch_bias": True,
    "fc_norm": True,
    "epsilon": 1e-5,
    "distillation_token": False,
    "gated_mlp": True,
    "key_bias": True,
    "projection_dim": 6,
    "final_norm": True,
    "position_placement": "stem",
    "axial": False,
    "unit_norm": True,
    "resnet_stages": (),
    "resnet_width": 32,
}
ALL_POOLINGS = ("token", "map", "token_gap", None)


def test_every_option_is_an_argument():
    for make, kind in ((vision_transformer, VitOptions), (resnet, ResNetOptions)):
        assert list(inspect.signature(make).parameters) == [
            f.name for f in dataclasses.fields(kind)
        ]
    assert set(OPTIONS) == {*VitOptions.names(), *VitOptions.names("size", "training")}
    model = vision_transformer(**OPTIONS)
    assert {name: getattr(model.options, name) for name in OPTIONS} == {
        **OPTIONS,
        **{"patch_size": (4, 4), "image_size": (16, 16)},
    }


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (resnet, BIT),
        (resnet, {**BIT, "preactivation": False}),
        (vision_transformer, HYBRID),
        (vision_transformer, OPTIONS),
        (vision_transformer, {**TINY, "distillation_token": True}),
        (vision_transformer, {**TINY, "pooling": "gap", "final_norm": False, "class_token": True}),
        *((vision_transformer, {**TINY, "position_embedding": x}) for x in POSITION_EMBEDDINGS),
        *((vision_transformer, {**TINY, "num_classes": 0, "pooling": x}) for x in ALL_POOLINGS),
    ],
)
def test_json_records_them(make, options):
    model = make(**options)
    recorded = options_from_config(json.loads(json.dumps(dataclasses.asdict(model.options))))
    assert recorded == model.options
    again = build_model(recorded)
    assert [(w.path, w.shape) for w in again.weights] == [(w.path, w.shape) for w in model.weights]
