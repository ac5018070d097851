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
from keras_vit.models.options import changed_options
from keras_vit.models.vit import variable_shapes
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import ABLATIONS
from tests.fixtures.tiny import TINY, images
from tests.models.test_remat import trained

OPTIONS = {**TINY, "depth": 3, "image_size": (16, 12)}
WIDTH, DEPTH, GRID, PATCHES = 8, 3, (4, 3), 12
TABLE, TABLE_2D = (PATCHES + 1) * WIDTH, sum(GRID) * WIDTH // 2


def positions_of(kind, name):
    if kind == "learned":
        return AddPositionEmbedding(name=name)
    return AddPositionEmbedding2D(GRID, num_prefix_tokens=1, name=name)


def composed(kind, placement):
    """The model, composed by hand."""
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
    tokens = LayerNormalization(epsilon=1e-6, name="encoder_norm")(tokens)
    pooled = ClassTokenPooling(name="pooling")(tokens)
    return keras.Model(inputs, Dense(3, name="head")(pooled))


@pytest.mark.parametrize("placement", ["stem", "every_layer", "every_layer_shared"])
@pytest.mark.parametrize("kind", ["learned", "learned2d"])
def test_a_placement_is_the_layers_composed_by_hand(kind, placement):
    options = {**OPTIONS, "position_embedding": kind, "position_placement": placement}
    model, by_hand = vision_transformer(**options), composed(kind, placement)
    randomise(model)
    assert [v.path for v in by_hand.weights] == [v.path for v in model.weights]
    by_hand.set_weights(model.get_weights())
    batch = images(2, 16, 12, 3)
    np.testing.assert_allclose(to_numpy(model(batch)), to_numpy(by_hand(batch)), atol=1e-6)


def test_equal_tables_are_a_shared_one():
    model = vision_transformer(**OPTIONS, position_placement="every_layer")
    shared = vision_transformer(**OPTIONS, position_placement="every_layer_shared")
    randomise(model)
    batch, values = images(2, 16, 12, 3), {v.path: to_numpy(v.value) for v in model.weights}
    for variable in shared.weights:
        variable.assign(values[variable.path])
    for index in (1, 2):
        # Each table counts.
        before = to_numpy(model(batch))
        table = model.get_layer(f"position_embedding_{index}").embedding
        table.assign(values["position_embedding/embedding"])
        assert np.abs(to_numpy(model(batch)) - before).max() > 1e-3
    np.testing.assert_allclose(to_numpy(shared(batch)), to_numpy(model(batch)), atol=1e-6)


def test_an_axial_model_is_the_layers_composed_by_hand():
    model = vision_transformer(**OPTIONS, axial=True, pooling="gap")
    randomise(model)
    inputs = keras.Input((16, 12, 3))
    tokens = keras_vit.PatchEmbedding(WIDTH, 4, name="patch_embedding")(inputs)
    tokens = AddPositionEmbedding(name="position_embedding")(tokens)
    for index in range(DEPTH):
        tokens = AxialTransformerBlock(2, 16, GRID, name=f"block_{index}")(tokens)
    tokens = LayerNormalization(epsilon=1e-6, name="encoder_norm")(tokens)
    pooled = GlobalAveragePooling1D(data_format="channels_last", name="pooling")(tokens)
    by_hand = keras.Model(inputs, Dense(3, name="head")(pooled))
    assert [v.path for v in by_hand.weights] == [v.path for v in model.weights]
    by_hand.set_weights(model.get_weights())
    batch = images(2, 16, 12, 3)
    np.testing.assert_allclose(to_numpy(model(batch)), to_numpy(by_hand(batch)), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"position_embedding": "none"}, -TABLE),
        ({"position_placement": "every_layer"}, (DEPTH - 1) * TABLE),
        ({"position_placement": "every_layer_shared"}, 0),
        ({"position_embedding": "learned2d"}, TABLE_2D - TABLE),
        (
            {"position_embedding": "learned2d", "position_placement": "every_layer"},
            DEPTH * TABLE_2D - TABLE,
        ),
        # Heads of width 4 share an embedding per offset.
        ({"position_embedding": "relative"}, DEPTH * (2 * PATCHES - 1) * 4 - TABLE),
        # Each block again, and neither the class token nor its position.
        (
            {"axial": True, "pooling": "gap"},
            DEPTH * (2 * 2 * 8 + 4 * (8 * 8 + 8) + 2 * 8 * 16 + 16 + 8) - 2 * WIDTH,
        ),
    ],
    ids=str,
)
def test_parameters(options, more):
    model = vision_transformer(**OPTIONS, **options)
    assert model.count_params() - vision_transformer(**OPTIONS).count_params() == more
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    assert variable_shapes(model.options) == shapes


@pytest.mark.parametrize("name", ABLATIONS)
def test_options(name):
    model = vision_transformer(**{**OPTIONS, **ABLATIONS[name]})
    assert set(ABLATIONS[name]) - {"pooling"} <= set(changed_options(model.options))


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "torch", reason="JAX compiles for seconds")
@pytest.mark.parametrize("name", ABLATIONS)
def test_training_with_remat_is_the_same(name):
    options = {"image_size": 16, **ABLATIONS[name]}
    options = {name: value for name, value in options.items() if name not in TINY}
    pairs = zip(trained(False, remat=True, **options), trained(False, **options), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ABLATIONS)
def test_frozen_blocks(name):
    model = vision_transformer(**{**OPTIONS, **ABLATIONS[name]})
    keras_vit.freeze_blocks(model, 2)
    trainable = {weight.path.split("/")[0] for weight in model.trainable_weights}
    later = {"position_embedding_2"} if "every_layer" in ABLATIONS[name].values() else set()
    assert trainable == {"block_2", "encoder_norm", "head"} | later


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_lora_and_quantized_kernels(name, tmp_path):
    model = vision_transformer(**{**OPTIONS, **ABLATIONS[name]})
    randomise(model)
    batch = images(2, 16, 12, 3)
    expected = to_numpy(model(batch))
    model = keras_vit.enable_lora(model, rank=2)
    halves = 2 if "axial" in ABLATIONS[name] else 1
    assert len(model.trainable_weights) == DEPTH * halves * 6 * 2 + 2
    model.save(tmp_path / "lora.keras")
    loaded = keras.models.load_model(tmp_path / "lora.keras")
    np.testing.assert_array_equal(to_numpy(loaded(batch)), to_numpy(model(batch)))
    np.testing.assert_allclose(to_numpy(loaded(batch)), expected, atol=1e-6)
    merged = keras_vit.merge_lora(loaded)
    assert merged.options == model.options
    np.testing.assert_allclose(to_numpy(merged(batch)), expected, atol=1e-6)
    int8 = keras_vit.quantize(merged, "int8")
    np.testing.assert_allclose(to_numpy(int8(batch)), expected, atol=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position_placement": "head"}, "`position_placement` must be one of .*'head'"),
        *(
            (
                {"position_placement": "every_layer", "position_embedding": kind},
                f"`position_placement` must be 'stem' unless `position_embedding` .*'{kind}'",
            )
            for kind in ("none", "sincos2d", "rotary", "relative")
        ),
        ({"axial": True}, "`axial=True` needs .*pooling='token'"),
        ({"axial": True, "pooling": "token_gap"}, "`axial=True` needs .*pooling='token_gap'"),
        ({"axial": True, "pooling": "gap", "class_token": True}, "`axial=True` .*_token=True"),
        ({"axial": True, "pooling": "map", "num_registers": 2}, "`axial=True` .*_registers=2"),
        *(
            (
                {"axial": True, "pooling": "gap", "position_embedding": kind},
                f"`axial=True` needs .*position_embedding='{kind}'",
            )
            for kind in ("rotary", "relative")
        ),
        (
            {"axial": True, "pooling": "gap", "image_size": None},
            "`image_size` must be given for .* axial",
        ),
        (
            {"position_embedding": "relative", "image_size": None},
            "`image_size` must be given for .* relative",
        ),
    ],
    ids=str,
)
def test_wrong_argument(options, message):
    with pytest.raises(ValueError, match=message):
        vision_transformer(**{**OPTIONS, **options})
