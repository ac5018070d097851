"""Models of and for the real keras-hub."""

import keras_hub
import numpy as np
import pytest
from keras import ops

import keras_vit
from tests.fixtures.contract import randomise

SMALL = {
    "image_shape": (32, 48, 3),
    "patch_size": 8,
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 48,
    "mlp_dim": 80,
}
IMAGES = np.random.default_rng(0).normal(size=(2, 32, 48, 3)).astype("float32")


def backbone(**changes):
    return keras_hub.models.ViTBackbone(**{**SMALL, **changes})


def predict(model):
    return ops.convert_to_numpy(model(IMAGES))


def classifier(head_options, **backbone_options):
    return keras_hub.models.ViTImageClassifier(
        backbone(**backbone_options), num_classes=10, **head_options
    )


@pytest.mark.parametrize(
    "make",
    [
        backbone,
        lambda: classifier({}),
        lambda: classifier({"intermediate_dim": 20}, layer_norm_epsilon=1e-2),
        lambda: classifier({"pooling": "gap"}, use_class_token=False),
        lambda: classifier({"activation": "softmax"}),
    ],
    ids=["backbone", "classifier", "epsilon", "gap", "softmax"],
)
def test_there_and_back(make):
    theirs = make()
    randomise(theirs)
    ours = keras_vit.from_keras_hub(theirs)
    np.testing.assert_allclose(predict(ours), predict(theirs), rtol=0, atol=1e-5)
    again = keras_vit.to_keras_hub(ours)
    assert type(again) is type(theirs)
    for old, new in zip(theirs.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
    np.testing.assert_array_equal(predict(again), predict(theirs))


@pytest.mark.parametrize(
    "freeze",
    [
        lambda model: [model.backbone],
        lambda model: [model.backbone.layers[1], model.get_layer("predictions")],
        lambda model: [model.backbone.get_layer("vit_encoder").encoder_layers[1].mha],
    ],
    ids=["backbone", "layers", "attention"],
)
def test_what_is_frozen_stays_frozen(freeze):
    theirs = classifier({})
    for part in freeze(theirs):
        part.trainable = False
    ours = keras_vit.from_keras_hub(theirs)
    again = keras_vit.to_keras_hub(ours)
    assert trained(again) == trained(theirs)
    assert len(ours.trainable_weights) == len(theirs.trainable_weights)


def trained(model):
    return {variable.path for variable in model.trainable_weights}


def test_no_counterpart():
    for theirs in (
        keras_hub.models.ViTImageClassifier(backbone(), 3, pooling="gap"),
        backbone(use_mha_bias=False),
        keras_hub.layers.SinePositionEncoding(),
    ):
        with pytest.raises(ValueError, match="`model` must .* Received: "):
            keras_vit.from_keras_hub(theirs)
    for options in (
        {"pooling": "gap", "class_token": True},
        {"activation": "gelu_tanh"},
        {"num_registers": 2},
        {"pooling": "map"},
        {"pooling": "token_gap"},
        {"position_placement": "every_layer_shared"},
    ):
        arguments = {"num_classes": 3, "image_size": 32, "activation": "gelu", **options}
        with pytest.raises(ValueError, match="`model` must .* keras.hub"):
            keras_vit.to_keras_hub(keras_vit.ViT_Ti16(**arguments))
