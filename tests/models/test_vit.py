"""The builder of Vision Transformers."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.models import vision_transformer
from tests.fixtures.contract import POLICIES, check_model, to_numpy
from tests.fixtures.tiny import TINY, images


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "mixed_float16", "num_registers": 2, "layer_scale": 0.1, "qk_norm": True},
        pytest.param(
            {"pooling": "gap", "representation_size": 6, "qkv_bias": False}
            | {"dtype": "mixed_bfloat16"},
            marks=pytest.mark.large,
        ),
        {"pooling": "map", "image_size": (8, 16), "image_channels": 1, "activation": "gelu"},
        pytest.param(
            {"pooling": None, "num_classes": 0, "patch_size": (4, 8)}
            | {"position_embedding": "sincos2d"},
            marks=pytest.mark.large,
        ),
        {
            **{"pooling": "gap", "class_token": True, "fc_norm": True, "pre_norm": True},
            **{"dropout": 0.1, "attention_dropout": 0.1, "stochastic_depth": 0.1, "epsilon": 1e-3},
        },
    ],
    ids=str,
)
def test_model_keeps_the_contract(options, tmp_path):
    check_model(vision_transformer(**{**TINY, **options}), tmp_path)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"num_classes": 0, "representation_size": 6}, (6,)),
        ({"num_classes": 0, "pooling": None}, (17, 8)),
        ({"num_classes": 5, "pooling": None}, (17, 5)),
        ({"num_classes": 0, "pooling": "map"}, (8,)),
        ({"image_size": (8, 24)}, (3,)),
        ({"patch_size": (8, 4)}, (3,)),
        ({"patch_size": 16}, (3,)),
    ],
    ids=str,
)
def test_output_shape(options, shape):
    model = vision_transformer(**{**TINY, **options})
    assert model.output_shape == (None, *shape)
    assert tuple(model(images(2, *model.input_shape[1:])).shape) == (2, *shape)


NAMES = """
images patch_embedding class_token position_embedding dropout block_0
encoder_norm pooling pre_logits head
"""
PATHS = """
patch_embedding/projection/kernel patch_embedding/projection/bias
class_token/token position_embedding/embedding
block_0/layer_norm_1/gamma block_0/layer_norm_1/beta
block_0/attention/query/kernel block_0/attention/query/bias
block_0/attention/key/kernel block_0/attention/key/bias
block_0/attention/value/kernel block_0/attention/value/bias
block_0/attention/output/kernel block_0/attention/output/bias
block_0/layer_norm_2/gamma block_0/layer_norm_2/beta
block_0/mlp/dense_0/kernel block_0/mlp/dense_0/bias
block_0/mlp/dense_1/kernel block_0/mlp/dense_1/bias
encoder_norm/gamma encoder_norm/beta
pre_logits/kernel pre_logits/bias
head/kernel head/bias
"""


def test_names_are_the_same_on_every_backend():
    model = vision_transformer(**{**TINY, "depth": 1}, representation_size=6)
    assert [layer.name for layer in model.layers] == NAMES.split()
    assert [variable.path for variable in model.weights] == PATHS.split()


def test_initial_values():
    """NUMERICS section 6, the column of vit_jax."""
    model = keras_vit.ViT_Ti16(num_classes=10, image_size=64, representation_size=192)
    values = {variable.path: to_numpy(variable.value) for variable in model.weights}

    def std(path):
        return values[path].std()

    assert std("position_embedding/embedding") == pytest.approx(0.02, rel=0.05)
    assert std("patch_embedding/projection/kernel") == pytest.approx(768**-0.5, rel=0.02)
    assert std("pre_logits/kernel") == pytest.approx(192**-0.5, rel=0.02)
    for name in ("query", "key", "value", "output"):
        limit = (6 / (192 + 192)) ** 0.5
        kernel = values[f"block_3/attention/{name}/kernel"]
        assert np.abs(kernel).max() == pytest.approx(limit, rel=0.01)
        assert np.abs(kernel).max() <= limit
        assert kernel.std() == pytest.approx(limit / 3**0.5, rel=0.02)
        assert not values[f"block_3/attention/{name}/bias"].any()
    for name in ("dense_0", "dense_1"):
        limit = (6 / (192 + 768)) ** 0.5
        assert std(f"block_3/mlp/{name}/kernel") == pytest.approx(limit / 3**0.5, rel=0.02)
        assert std(f"block_3/mlp/{name}/bias") == pytest.approx(1e-6, rel=0.2)
    for path in ("class_token/token", "head/kernel", "head/bias", "pre_logits/bias"):
        assert not values[path].any()
    assert not np.array_equal(
        values["block_0/attention/query/kernel"], values["block_0/attention/key/kernel"]
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_logits_are_float32_and_tokens_are_not(policy):
    model = vision_transformer(**TINY, dtype=policy)
    outputs = model(images(2, 16, 16, 3))
    assert keras.backend.standardize_dtype(outputs.dtype) == "float32"
    tokens = model.get_layer("block_1").output
    assert tokens.dtype == policy.removeprefix("mixed_")
    _, scores = model.get_layer("block_0")(
        ops.cast(images(2, 17, 8), tokens.dtype), return_attention_scores=True
    )
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"
    np.testing.assert_allclose(to_numpy(scores).sum(-1), 1, rtol=1e-6)


def test_stochastic_depth_drops_whole_examples():
    block = keras_vit.TransformerBlock(num_heads=2, mlp_dim=16, stochastic_depth=0.5)
    tokens = images(64, 5, 8)
    moved = to_numpy(block(tokens, training=True)) - tokens
    dropped = (np.abs(moved) == 0).all(axis=(1, 2))
    # Both branches are dropped for a quarter of the examples.
    assert 4 <= dropped.sum() <= 32
    assert (np.abs(moved[~dropped]) > 0).mean() > 0.99
    np.testing.assert_array_equal(to_numpy(block(tokens)), to_numpy(block(tokens)))


def test_dropout_is_off_in_inference():
    model = vision_transformer(**TINY, dropout=0.5, attention_dropout=0.5, pooling="gap")
    model.get_layer("head").kernel.assign(images(8, 3))
    batch = images(4, 16, 16, 3)
    np.testing.assert_array_equal(to_numpy(model(batch)), to_numpy(model(batch)))
    first, second = model(batch, training=True), model(batch, training=True)
    assert np.abs(to_numpy(first) - to_numpy(second)).max() > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 18}, "`image_size` must be a multiple"),
        ({"num_heads": 3}, "`num_heads` must be a positive divisor of the width 8"),
        ({"stochastic_depth": 1.0}, "`stochastic_depth` must be"),
        # What has no such choice.
        ({"pooling": "mean"}, "`pooling` must be one of"),
        ({"position_embedding": "rope"}, "`position_embedding` must be one of"),
        ({"position_placement": "head"}, "`position_placement` must be one of"),
        ({"attention_path": "flash"}, "`attention_path` must be one of"),
        # Tokens that a pooling needs.
        ({"class_token": False}, "needs a class token"),
        ({"pooling": "token_gap", "class_token": False}, "`pooling='token_gap'` needs a class tok"),
        ({"distillation_token": True, "pooling": "gap"}, "`distillation_token` needs"),
        ({"distillation_token": True, "projection_dim": 4}, "nor `projection_dim`"),
        ({"fc_norm": True}, "`fc_norm` needs `pooling='gap'`"),
        ({"final_norm": False, "fc_norm": True, "pooling": "gap"}, "`fc_norm` .*final_norm=False"),
        # Widths that positions need.
        ({"num_heads": 4, "position_embedding": "rotary"}, "must be a multiple of 16"),
        ({"embedding_dim": 6, "position_embedding": "sincos2d"}, "must be a multiple of 4"),
        (
            {"embedding_dim": 5, "num_heads": 1, "position_embedding": "learned2d"},
            "a multiple of 2",
        ),
        *(
            (
                {"position_placement": "every_layer", "position_embedding": kind},
                "`position_placement` must be 'stem' unless `position_embedding`",
            )
            for kind in ("none", "sincos2d", "rotary", "relative")
        ),
        # Axial blocks have patches alone.
        *(
            ({"axial": True, **options}, "`axial=True` needs")
            for options in (
                {"pooling": "token"},
                {"pooling": "gap", "class_token": True},
                {"pooling": "map", "num_registers": 2},
                {"pooling": "gap", "position_embedding": "rotary"},
                {"pooling": "gap", "position_embedding": "relative"},
            )
        ),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vision_transformer(**{**TINY, **options})


def test_layer_norm_statistics_are_float32():
    norm = keras_vit.TransformerBlock(2, 16, dtype="mixed_bfloat16").layer_norm_1
    tokens = to_numpy(ops.cast(images(2, 5, 64) + 100, "bfloat16")).astype("float64")
    centred = tokens - tokens.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    outputs = to_numpy(norm(ops.cast(tokens, "bfloat16")))
    # Half a bfloat16 step of the result; statistics in bfloat16 would be off by whole units.
    np.testing.assert_allclose(outputs, expected, rtol=2**-8, atol=2**-8)


def test_fixed_positions_are_for_as_many_patches():
    with pytest.raises(ValueError, match=r"`grid_size` must be .*\(1, 1\), 24 patches"):
        keras_vit.layers.AddSincosPositionEmbedding((1, 1))(images(2, 24, 8))
