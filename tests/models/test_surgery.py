"""Another head and another image size."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import replace_head, resize, vision_transformer
from keras_vit.models.features import features
from keras_vit.models.interpolation import resize_relative_embedding
from keras_vit.models.structure import check_classifier
from keras_vit.models.surgery import copy_model
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.kernels import GATED, logits_of, small, tuned
from tests.fixtures.tiny import TINY, images
from tests.models.test_lora import MODES


def values(model):
    return {weight.path: to_numpy(weight.value) for weight in model.weights}


def check_backbone(model, new, leave_out=("head/",)):
    """The new model has the old values of all its other weights."""
    old_values = values(model)
    for path, value in values(new).items():
        if not path.startswith(leave_out):
            np.testing.assert_array_equal(value, old_values[path])


@pytest.mark.parametrize(
    ("pooling", "num_classes"), [("token", 0), ("token", 5), ("gap", 5), ("map", 5)]
)
def test_replace_head(pooling, num_classes):
    model = vision_transformer(**TINY, pooling=pooling, representation_size=6)
    new = replace_head(model, num_classes)
    assert new.output_shape == (None, num_classes or 8)
    new_values = values(new)
    assert not {"pre_logits/kernel", "pre_logits/bias"} & set(new_values)
    assert not any(new_values[path].any() for path in new_values if path.startswith("head/"))
    check_backbone(model, new)
    batch = images(2, 16, 16, 3)
    pooled = keras.Model(model.input, model.get_layer("pooling").output)
    np.testing.assert_allclose(features(new, batch), to_numpy(pooled(batch)), rtol=0, atol=1e-6)
    # The weights are copies.
    model.get_layer("block_0").mlp.dense_0.bias.assign(np.ones(16))
    assert not np.array_equal(values(new)["block_0/mlp/dense_0/bias"], np.ones(16))


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_is_the_same(mode):
    """Weights, quantized kernels, LoRA, and what is frozen."""
    model = tuned(layers=("query", "down"), mode=mode, pooling="map", **GATED)
    model.get_layer("block_1").mlp.trainable = False
    model.get_layer("pooling").mlp.dense_0.bias.trainable = True
    copy = copy_model(model)
    np.testing.assert_array_equal(logits_of(copy), logits_of(model))
    ours, theirs = (
        [(w.path, w.dtype, w.shape, w.trainable) for w in x.weights] for x in (model, copy)
    )
    assert ours == theirs
    copy.get_layer("block_0").layer_scale_1.gamma.assign(np.zeros(8))
    assert to_numpy(model.get_layer("block_0").layer_scale_1.gamma).any()


def test_a_model_in_a_name_scope_is_copied_like_others():
    """Keras opens one in `build` of a layer; the paths of a copy have no scope."""
    with keras.name_scope("teacher"):
        model = small()
    assert model.weights[0].path.startswith("teacher/")
    for copy in (copy_model(model), keras_vit.resize(model, model.input_shape[1:3])):
        np.testing.assert_array_equal(logits_of(copy), logits_of(model))


def test_surgery_keeps_what_layers_are():
    model = vision_transformer(
        **{**TINY, "activation": "gelu", "dropout": 0.1, "stochastic_depth": 0.2},
        **{"attention_path": "explicit", "dtype": "mixed_bfloat16"},
    )
    for new in (replace_head(model, 3), resize(model, 32)):
        assert [layer.name for layer in new.layers] == [layer.name for layer in model.layers]
        block = new.get_layer("block_1")
        assert (block.activation, block.dropout, block.stochastic_depth) == ("gelu", 0.1, 0.2)
        assert block.attention.attention_path == "explicit"
        assert block.compute_dtype == "bfloat16"
        assert new.get_layer("head").compute_dtype == "float32"


@pytest.mark.parametrize(
    ("options", "num_prefix", "size", "grid"),
    [
        ({}, 1, 32, (8, 8)),
        ({}, 1, (24, 8), (6, 2)),
        # 5 x 2 patches and no class token, which a square root takes for 1 + 9 (NUMERICS 12).
        ({"pooling": "gap", "image_size": (20, 8)}, 0, (8, 24), (2, 6)),
        ({"num_registers": 3}, 4, (8, 24), (2, 6)),
        ({"pooling": "gap", "num_registers": 2, "class_token": False}, 2, (8, 24), (2, 6)),
        ({"pooling": "gap", "class_token": True, "fc_norm": True}, 1, (8, 24), (2, 6)),
        ({"position_placement": "every_layer", "num_registers": 1}, 2, (8, 24), (2, 6)),
        ({"position_placement": "every_layer_shared"}, 1, (8, 24), (2, 6)),
    ],
    ids=str,
)
def test_resize(options, num_prefix, size, grid):
    model = vision_transformer(**{**TINY, **options})
    new = resize(model, size)
    assert new.input_shape == (None, 4 * grid[0], 4 * grid[1], 3)
    old_grid = [pixels // 4 for pixels in model.input_shape[1:3]]
    tables = [path for path in values(model) if path.startswith("position_embedding")]
    assert len(tables) == (2 if options.get("position_placement") == "every_layer" else 1)
    for path in tables:
        table = values(model)[path]
        expected = keras_vit.resize_position_embedding(table, grid, old_grid, num_prefix)
        np.testing.assert_array_equal(values(new)[path], expected)
    check_backbone(model, new, leave_out=("position_embedding",))
    assert tuple(new(images(2, *new.input_shape[1:])).shape) == (2, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"position_embedding": "sincos2d"},
        {"position_embedding": "rotary"},
        # Axial blocks have no weights of the grid, either.
        {"position_embedding": "sincos2d", "axial": True, "pooling": "gap"},
    ],
    ids=str,
)
def test_fixed_positions_are_those_of_the_new_grid(options):
    options = {**TINY, "num_heads": 1, "embedding_dim": 16, **options}
    model = vision_transformer(**options)
    randomise(model)
    batch = images(2, 24, 8, 3)
    expected = vision_transformer(**{**options, "image_size": (24, 8)})
    expected.set_weights(model.get_weights())
    new = resize(model, (24, 8))
    np.testing.assert_array_equal(to_numpy(new(batch)), to_numpy(expected(batch)))
    assert replace_head(new, 2).input_shape == (None, 24, 8, 3)


def test_positions_of_rows_and_columns():
    """Interpolating them is interpolating the table that they add up to."""
    model = vision_transformer(**TINY, position_embedding="learned2d")
    rows, columns = (values(model)[f"position_embedding/{name}"] for name in ("rows", "columns"))
    table = to_numpy(model.get_layer("position_embedding").table_of())
    # Patch 6 is the third of the second row.
    np.testing.assert_array_equal(table[0, 6], [*rows[1, 0], *columns[0, 2]])
    new = resize(model, (24, 8))
    np.testing.assert_allclose(
        to_numpy(new.get_layer("position_embedding").table_of()),
        keras_vit.resize_position_embedding(table, (6, 2), (4, 4), 0),
        atol=1e-6,
    )


@pytest.mark.parametrize(("size", "grid"), [((24, 8), (6, 2)), ((8, 32), (2, 8))])
def test_relative_positions(size, grid):
    model = vision_transformer(**TINY, position_embedding="relative")
    randomise(model)
    new, old_values = resize(model, size), values(model)
    for path, value in values(new).items():
        expected = old_values[path]
        if path.endswith("relative_embedding"):
            expected = resize_relative_embedding(expected, (4, 4), grid)
        np.testing.assert_array_equal(value, expected)
    assert tuple(new(images(2, *new.input_shape[1:])).shape) == (2, 3)


def test_surgery_on_layers_composed_by_hand():
    inputs = keras.Input((16, 16, 3))
    tokens = keras_vit.PatchEmbedding(8, 4)(inputs)
    tokens = keras_vit.AddPositionEmbedding()(keras_vit.ClassToken()(tokens))
    tokens = keras_vit.TransformerBlock(2, 16)(tokens=tokens)
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(tokens[:, 0]))
    assert resize(model, 32).input_shape == (None, 32, 32, 3)
    assert replace_head(model, 5).output_shape == (None, 5)


def segmenter_of(model):
    return keras_vit.segmenter(keras_vit.backbone(model, ("P2",)), 2)


def of_keras(model):
    return keras.Model(model.input, keras.layers.Softmax(name="softmax")(model.output))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: resize(model, 18), "`image_size` must be a multiple"),
        (lambda model: resize(model, patch_size=5), "`image_size` must be a multiple"),
        (lambda model: replace_head(segmenter_of(model), 3), "`model` must classify images"),
        (lambda model: check_classifier(of_keras(model)), "logits by its last layer, `head`"),
        *(
            (
                lambda _, surgery=surgery: surgery(keras.Sequential([keras.Input((16,))]), 4),
                "`model` must be a Vision Transformer",
            )
            for surgery in (replace_head, resize, features)
        ),
    ],
)
def test_what_surgery_cannot_do_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(vision_transformer(**TINY))
