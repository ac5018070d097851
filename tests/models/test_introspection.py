"""Options that are read off a model build it again."""

import inspect

import keras
import pytest
from keras.layers import Dense

from keras_vit.layers import BottleneckUnit
from keras_vit.models import resnet, vision_transformer
from keras_vit.models.model import NOT_OPTIONS, options_of, read_options
from keras_vit.models.options import POSITION_EMBEDDINGS
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
    "resnet_stages": (),
    "resnet_width": 32,
}
ALL_POOLINGS = ("token", "map", "token_gap", None)


def test_every_option():
    parameters = inspect.signature(vision_transformer).parameters
    assert set(OPTIONS) == set(parameters) - set(NOT_OPTIONS)
    changed = {**OPTIONS, "patch_size": (4, 4), "image_size": (16, 16)}
    assert read_options(vision_transformer(**OPTIONS)) == changed


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (resnet, BIT),
        (resnet, {**BIT, "preactivation": False}),
        (vision_transformer, HYBRID),
        (vision_transformer, {**TINY, "distillation_token": True}),
        (vision_transformer, {**TINY, "pooling": "gap", "final_norm": False, "class_token": True}),
        *((vision_transformer, {**TINY, "position_embedding": x}) for x in POSITION_EMBEDDINGS),
        *((vision_transformer, {**TINY, "num_classes": 0, "pooling": x}) for x in ALL_POOLINGS),
    ],
)
def test_description(make, options):
    model = make(**options)
    described = read_options(model)
    again = make(**described)
    assert read_options(again) == described == options_of(model)
    assert [v.path for v in again.weights] == [v.path for v in model.weights]
    names = set(options) - {"image_size", "patch_size"}
    assert {name: described[name] for name in names} == {name: options[name] for name in names}


def changed(model, name, **changes):
    """The model with a layer of another configuration."""

    def clone(layer):
        config = layer.get_config()
        return layer.__class__.from_config({**config, **changes} if layer.name == name else config)

    return keras.models.clone_model(model, clone_function=clone)


@pytest.mark.parametrize(
    ("make", "options", "name", "changes", "message"),
    [
        (resnet, BIT, "root_conv", {"symmetric_padding": False}, "differs in root_conv"),
        (resnet, BIT, "root_conv", {"kernel_size": 3}, "differs in root_conv"),
        (resnet, BIT, "norm", {"epsilon": 1e-3}, "differs in norm"),
        (resnet, BIT, "norm", {"groups": 16}, "differs in norm"),
        (resnet, BIT, "stage_1_unit_2", {"filters": 64}, "differs|filters and strides"),
        (resnet, BIT, "stage_2_unit_1", {"strides": 1}, "in stage_2_unit_1 the filters and str"),
        (vision_transformer, HYBRID, "root_pool", {"pool_size": 2}, "differs in root_pool"),
        (vision_transformer, HYBRID, "root_pool", {"strides": 2, "padding": "valid"}, "root_pool"),
        (vision_transformer, TINY, "encoder_norm", {"epsilon": 1e-3}, "differs in encoder_norm"),
        (vision_transformer, TINY, "block_1", {"activation": "gelu"}, "blocks of one kind"),
    ],
)
def test_customised_models_are_not_described(make, options, name, changes, message):
    """What is not the builders' would be saved as it were, and loaded as another function."""
    model = make(**options)
    options_of(changed(model, "head", kernel_initializer="ones"))
    with pytest.raises(ValueError, match=message):
        options_of(changed(model, name, **changes))


@pytest.mark.parametrize(
    "make_layers",
    [
        lambda: [Dense(2)],
        lambda: [BottleneckUnit(32, name="unit")],
        lambda: [BottleneckUnit(32, name="stage_one_unit_1")],
        lambda: [Dense(32, name="root_conv"), BottleneckUnit(32, name="stage_1_unit_1")],
    ],
    ids=["another model", "no stage", "a word for a number", "a root of another kind"],
)
def test_other_models_are_not_described(make_layers):
    model = keras.Sequential([keras.Input((16, 16, 32)), *make_layers()])
    with pytest.raises(ValueError, match="`model` must be a Vision Transformer or a ResNet as"):
        options_of(model)
