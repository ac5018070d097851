"""The last block computes the class token alone, and everything else is equal."""

import keras
import numpy as np
import pytest

from keras_vit.layers import ClassTokenPooling, TransformerBlock
from keras_vit.models import ImageModel, for_inference, freeze_blocks, vision_transformer
from keras_vit.models.surgery import copy_model
from keras_vit.models.unused_tokens import without_unused_tokens
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.kernels import GATED, tuned
from tests.fixtures.tiny import TINY, images

X = images(4, 16, 16, 3)
OPTIONS = {
    "plain": {},
    "distillation": {"distillation_token": True},
    "registers": {"num_registers": 2, "representation_size": 8},
    "rotary": {"position_embedding": "rotary", "embedding_dim": 16},
    "hybrid": {"patch_size": 1, "resnet_stages": (1,), "resnet_width": 32},
    "remat": {"remat": True},
    "gated": GATED,
    "any size": {"image_size": None},
    "no norm": {"final_norm": False},
    "features": {"num_classes": 0},
    "explicit": {"attention_path": "explicit"},
}
UNCHANGED = {
    "relative": {"position_embedding": "relative"},
    "gap": {"pooling": "gap"},
    "map": {"pooling": "map"},
    "token_gap": {"pooling": "token_gap"},
    "axial": {"pooling": "gap", "axial": True},
}


def build(**options):
    model = vision_transformer(**{**TINY, **options})
    randomise(model)
    return model


def is_shortened(model):
    config = super(ImageModel, model).get_config()
    calls = [node for layer in config["layers"] for node in layer["inbound_nodes"]]
    return any("num_queries" in node["kwargs"] for node in calls)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_outputs(name):
    model = build(**OPTIONS[name])
    expected = to_numpy(model(X))
    shorter = without_unused_tokens(model)
    assert is_shortened(shorter)
    np.testing.assert_allclose(to_numpy(shorter(X)), expected, rtol=1e-5, atol=1e-6)


def test_the_model_does_not_change():
    model = build()
    config, tokens = model.get_config(), model.get_layer("block_1").output
    shorter = without_unused_tokens(model)
    assert model.get_config() == config
    assert model.get_layer("block_1").output is tokens
    assert all(one is other for one, other in zip(shorter.weights, model.weights, strict=True))


@pytest.mark.parametrize("kind", ["plain", "distillation", "remat", "frozen", "lora"])
def test_the_same_training(kind):
    model = tuned() if kind == "lora" else build(**OPTIONS.get(kind, {}))
    if kind == "frozen":
        freeze_blocks(model, 1)
    copy = copy_model(model)
    labels = np.array([0, 1, 2, 1])
    for trained in (copy, without_unused_tokens(model)):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained.compile(keras.optimizers.SGD(0.1), loss)
        trained.fit(X, labels, batch_size=2, shuffle=False, verbose=0)
    for one, other in zip(model.weights, copy.weights, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", UNCHANGED)
def test_models_that_stay_the_same(name):
    model = build(**UNCHANGED[name])
    assert without_unused_tokens(model) is model


def test_a_model_that_returns_the_tokens_too():
    model = build()
    as_float32 = keras.layers.Activation("linear")
    names = "block_0", "block_1", "head"
    both = keras.Model(model.input, [as_float32(model.get_layer(n).output) for n in names])
    assert without_unused_tokens(both) is both


def test_a_model_that_returns_the_normalized_tokens_too():
    model = build()
    tokens = keras.Model(model.input, [model.output, model.get_layer("encoder_norm").output])
    assert for_inference(tokens) is tokens


def twice(block, tokens):
    return block(keras.layers.LayerNormalization()(block(tokens)))


def with_scores(block, tokens):
    return block(tokens, return_attention_scores=True)[0]


def over_tokens(block, tokens):
    return keras.layers.LayerNormalization(axis=(1, 2))(block(tokens))


def nested(block, tokens):
    outputs = keras.layers.Dense(8)(inner := keras.Input(tokens.shape[1:]))
    return keras.Model(inner, outputs)(block(tokens))


@pytest.mark.parametrize("transform", [twice, with_scores, over_tokens, nested])
def test_own_models(transform):
    inputs = keras.Input((6, 8))
    tokens = transform(TransformerBlock(2, 16), inputs)
    model = keras.Model(inputs, ClassTokenPooling()(tokens))
    assert without_unused_tokens(model) is model


def test_a_subclass_of_the_user():
    class Own(ImageModel):
        pass

    model = build()
    own = Own(model.input, model.output)
    assert without_unused_tokens(own) is own


def test_the_whole_model_is_saved(tmp_path):
    shorter = without_unused_tokens(build())
    shorter.class_names = ("cat", "dog", "owl")
    shorter.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not is_shortened(loaded)
    assert loaded.class_names == shorter.class_names
    np.testing.assert_allclose(to_numpy(loaded(X)), to_numpy(shorter(X)), rtol=0, atol=1e-6)


def test_metadata():
    model = build(dtype="mixed_bfloat16")
    model.class_names = ("cat", "dog", "owl")
    copy = for_inference(model)
    assert copy.class_names == model.class_names
    assert copy.options == model.options


def test_the_new_model_is_not_compiled():
    model = build()
    model.compile("adam", "mse")
    assert not without_unused_tokens(model).compiled
