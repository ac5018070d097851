"""Another head, another image size, and features."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import replace_head, resize, vision_transformer
from keras_vit.models.features import features
from keras_vit.models.interpolation import resize_relative_embedding
from keras_vit.models.structure import check_classifier
from keras_vit.models.surgery import copy_model, float_kernel
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
    quantized = keras_vit.quantize(model, "int8")
    kernel = to_numpy(float_kernel(quantized.get_layer("block_0").attention.query))
    expected = to_numpy(model.get_layer("block_0").attention.query.kernel)
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=np.abs(expected).max() / 100)


@pytest.mark.slow
def test_training_a_new_head_leaves_the_model_alone():
    model = vision_transformer(**TINY)
    before = values(model)
    new = replace_head(model, 2)
    new.get_layer("head").kernel.assign(images(8, 2))
    new.compile("sgd", "mse")
    new.fit(images(4, 16, 16, 3), np.ones((4, 2)), verbose=0)
    after = values(model)
    for path, value in before.items():
        np.testing.assert_array_equal(value, after[path])
    assert not np.array_equal(values(new)["class_token/token"], before["class_token/token"])


def test_surgery_keeps_what_layers_are():
    model = vision_transformer(
        **TINY, activation="gelu", dropout=0.1, stochastic_depth=0.2, dtype="mixed_bfloat16"
    )
    for new in (replace_head(model, 3), resize(model, 32)):
        assert new.name == model.name
        assert [layer.name for layer in new.layers] == [layer.name for layer in model.layers]
        block = new.get_layer("block_1")
        assert (block.activation, block.dropout, block.stochastic_depth) == ("gelu", 0.1, 0.2)
        assert block.compute_dtype == "bfloat16"
        assert new.get_layer("head").compute_dtype == "float32"


@pytest.mark.parametrize("size", [32, (8, 24), (24, 8)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "gap"},
        # 5 x 2 patches and no class token, which a square root takes for 1 + 9 (NUMERICS 12).
        {"pooling": "gap", "image_size": (20, 8)},
        {"num_registers": 3},
        {"pooling": "gap", "num_registers": 2, "class_token": False},
        {"pooling": "gap", "class_token": True, "fc_norm": True},
    ],
    ids=str,
)
def test_resize(size, options):
    model = vision_transformer(**{**TINY, **options})
    new = resize(model, size)
    assert new.input_shape == (None, *((size, size) if isinstance(size, int) else size), 3)
    old_grid, grid = ([pixels // 4 for pixels in m.input_shape[1:3]] for m in (model, new))
    num_prefix = options.get("num_registers", 0) + options.get(
        "class_token", "pooling" not in options
    )
    path = "position_embedding/embedding"
    expected = keras_vit.resize_position_embedding(values(model)[path], grid, old_grid, num_prefix)
    np.testing.assert_array_equal(values(new)[path], expected)
    check_backbone(model, new, leave_out=("position_embedding/",))
    assert tuple(new(images(2, *new.input_shape[1:])).shape) == (2, 3)


def test_fixed_positions_are_those_of_the_new_grid():
    options = {**TINY, "position_embedding": "sincos2d"}
    model = vision_transformer(**options)
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


@pytest.mark.parametrize("placement", ["every_layer", "every_layer_shared"])
def test_positions_of_each_block(placement):
    model = vision_transformer(**TINY, position_placement=placement, num_registers=1)
    new = resize(model, (24, 8))
    tables = [path for path in values(model) if path.startswith("position_embedding")]
    assert len(tables) == (2 if placement == "every_layer" else 1)
    for path in tables:
        expected = keras_vit.resize_position_embedding(values(model)[path], (6, 2), (4, 4), 2)
        np.testing.assert_array_equal(values(new)[path], expected)
    check_backbone(model, new, leave_out=("position_embedding",))


@pytest.mark.parametrize(("size", "grid"), [((24, 8), (6, 2)), ((8, 32), (2, 8)), (16, (4, 4))])
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


@pytest.mark.slow
def test_axial_blocks_have_no_weights_of_the_grid():
    options = {**TINY, "axial": True, "pooling": "gap", "position_embedding": "sincos2d"}
    model, batch = vision_transformer(**options), images(2, 24, 8, 3)
    randomise(model)
    expected = vision_transformer(**{**options, "image_size": (24, 8)})
    expected.set_weights(model.get_weights())
    for new in (resize(model, (24, 8)), replace_head(resize(model, (24, 8)), 3)):
        tokens = features(new, batch)
        np.testing.assert_allclose(tokens, features(expected, batch), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_without_positions_patches_have_no_order():
    model = vision_transformer(**TINY, position_embedding="none")
    batch = images(1, 16, 16, 3)
    # Rows of patches, the other way round.
    turned = batch.reshape(1, 4, 4, 16, 3)[:, ::-1].reshape(batch.shape)
    ours, theirs = (keras_vit.features(model, x) for x in (batch, turned))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert resize(model, (24, 8)).count_params() == model.count_params()


@pytest.mark.slow
def test_surgery_on_a_reloaded_and_on_an_operated_model(tmp_path):
    vision_transformer(**TINY, image_channels=1).save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    for new in (resize(replace_head(model, 5), 32), replace_head(resize(model, 32), 5)):
        assert new.input_shape == (None, 32, 32, 1)
        assert new.output_shape == (None, 5)
        assert replace_head(new, 7).output_shape == (None, 7)


def test_surgery_on_layers_composed_by_hand():
    inputs = keras.Input((16, 16, 3))
    tokens = keras_vit.PatchEmbedding(8, 4)(inputs)
    tokens = keras_vit.AddPositionEmbedding()(keras_vit.ClassToken()(tokens))
    tokens = keras_vit.TransformerBlock(2, 16)(tokens)
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(tokens[:, 0]))
    assert resize(model, 32).input_shape == (None, 32, 32, 3)
    assert replace_head(model, 5).output_shape == (None, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: resize(model, 18), r"`image_size` must be a multiple .*\(18, 18\)"),
        (lambda model: resize(model, "16"), "`image_size` must be a positive .*'16'"),
        (lambda model: resize(model, patch_size=0), "`patch_size` must be a positive .*=0"),
        (lambda model: resize(model, patch_size=5), r"`image_size` must be a multiple .*\(5, 5\)"),
    ],
)
def test_wrong_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call(vision_transformer(**TINY))


@pytest.mark.parametrize("surgery", [replace_head, resize, features])
def test_a_model_of_another_kind(surgery):
    inputs = keras.Input((16,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    for wrong in (model, "model.keras"):
        with pytest.raises(ValueError, match="`model` must be a Vision Transformer .*Received: "):
            surgery(wrong, 4)


def test_a_classifier_returns_the_logits_of_its_head():
    model = vision_transformer(**TINY)
    assert check_classifier(model) == 3
    model = keras.Model(model.input, keras.layers.Softmax(name="softmax")(model.output))
    with pytest.raises(ValueError, match="logits by its last layer, `head`. Received: .*'softmax'"):
        check_classifier(model)
