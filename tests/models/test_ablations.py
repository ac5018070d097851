"""The ablations of the ViT paper: placed and relative positions (D.4), and axial blocks (D.6)."""

import keras
import numpy as np
import pytest
from keras.layers import Dense, GlobalAveragePooling1D, LayerNormalization

import keras_vit
from keras_vit.layers import (
    AddPositionEmbedding,
    AddPositionEmbedding2D,
    AxialTransformerBlock,
    ClassTokenPooling,
    TransformerBlock,
)
from keras_vit.models import vision_transformer
from keras_vit.models.vit import variable_shapes
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import ABLATIONS
from tests.fixtures.tiny import TINY, images

OPTIONS = {**TINY, "depth": 3, "image_size": (16, 12)}
WIDTH, DEPTH, GRID = 8, 3, (4, 3)
PLACEMENTS = [
    {"position_embedding": kind, "position_placement": placement}
    for kind in ("learned", "learned2d")
    for placement in ("stem", "every_layer", "every_layer_shared")
]


def positions_of(kind, name):
    if kind == "learned":
        return AddPositionEmbedding(name=name)
    return AddPositionEmbedding2D(GRID, num_prefix_tokens=1, name=name)


def composed(position_embedding, position_placement):
    """A model with placed positions, composed by hand."""
    kind, placement = position_embedding, position_placement
    inputs = keras.Input((16, 12, 3))
    tokens = keras_vit.PatchEmbedding(WIDTH, 4, name="patch_embedding")(inputs)
    if (kind, placement) == ("learned2d", "stem"):
        tokens = AddPositionEmbedding2D(GRID, name="position_embedding")(tokens)
    tokens = keras_vit.ClassToken(name="class_token")(tokens)
    positions = None
    for index in range(DEPTH):
        if placement == "every_layer" or index == 0:
            name = f"position_embedding_{index}" if index else "position_embedding"
            positions = positions_of(kind, name)
        if placement != "stem" or (kind == "learned" and index == 0):
            tokens = positions(tokens)
        tokens = TransformerBlock(2, 16, name=f"block_{index}")(tokens)
    return with_head(inputs, tokens, ClassTokenPooling(name="pooling"))


def composed_of_axial_blocks(axial, pooling):
    """An axial model, composed by hand."""
    inputs = keras.Input((16, 12, 3))
    tokens = keras_vit.PatchEmbedding(WIDTH, 4, name="patch_embedding")(inputs)
    tokens = AddPositionEmbedding(name="position_embedding")(tokens)
    for index in range(DEPTH):
        tokens = AxialTransformerBlock(2, 16, GRID, name=f"block_{index}")(tokens)
    mean = GlobalAveragePooling1D(data_format="channels_last", name="pooling")
    return with_head(inputs, tokens, mean)


def with_head(inputs, tokens, pooling):
    tokens = LayerNormalization(epsilon=1e-6, name="encoder_norm")(tokens)
    return keras.Model(inputs, Dense(3, name="head")(pooling(tokens)))


@pytest.mark.parametrize("options", [*PLACEMENTS, ABLATIONS["axial"]], ids=str)
def test_an_ablation_is_the_layers_composed_by_hand(options):
    model = vision_transformer(**OPTIONS, **options)
    by_hand = (composed_of_axial_blocks if "axial" in options else composed)(**options)
    randomise(model)
    assert [v.path for v in by_hand.weights] == [v.path for v in model.weights]
    by_hand.set_weights(model.get_weights())
    batch = images(2, 16, 12, 3)
    np.testing.assert_allclose(to_numpy(model(batch)), to_numpy(by_hand(batch)), atol=1e-6)


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_shapes_of_variables_are_those_of_the_model(name):
    model = vision_transformer(**OPTIONS, **ABLATIONS[name])
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    assert variable_shapes(model.options) == shapes


@pytest.mark.parametrize("name", ABLATIONS)
def test_positions_of_frozen_blocks_are_frozen(name):
    model = vision_transformer(**OPTIONS, **ABLATIONS[name])
    keras_vit.freeze_blocks(model, 2)
    trainable = {weight.path.split("/")[0] for weight in model.trainable_weights}
    later = {"position_embedding_2"} if "every_layer" in ABLATIONS[name].values() else set()
    assert trainable == {"block_2", "encoder_norm", "head"} | later


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_lora_and_int8_kernels_compute_nearly_the_same(name):
    model = vision_transformer(**OPTIONS, **ABLATIONS[name])
    randomise(model)
    batch = images(2, 16, 12, 3)
    expected = to_numpy(model(batch))
    adapted = keras_vit.enable_lora(model, rank=2)
    halves = 2 if "axial" in ABLATIONS[name] else 1
    assert len(adapted.trainable_weights) == DEPTH * halves * 6 * 2 + 2
    np.testing.assert_allclose(to_numpy(adapted(batch)), expected, atol=1e-6)
    merged = keras_vit.merge_lora(adapted)
    np.testing.assert_allclose(to_numpy(merged(batch)), expected, atol=1e-6)
    int8 = keras_vit.quantize(merged, "int8")
    np.testing.assert_allclose(to_numpy(int8(batch)), expected, atol=0.05)
