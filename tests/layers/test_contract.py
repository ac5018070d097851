"""The shared contract, for every public layer."""

import pytest

from keras_vit import layers
from tests.fixtures.contract import check_layer

ATTENTION = {"num_heads": 2, "dropout": 0.1, "qkv_bias": False, "qk_norm": True, "epsilon": 1e-5}
ATTENTION["lora"] = {"query": (2, 3), "dense_0": (2, 3), "up": (2, 3)}
ROTARY = {"key_bias": True, "rotary_grid_size": (2, 2), "relative_grid_size": None}
RELATIVE = {"key_bias": True, "rotary_grid_size": None, "relative_grid_size": (2, 2)}
# Images of 4 x 2 pixels per patch, with another grid than the one of the stored positions.
FREE = {"grid_size": (3, 2), "patch_size": (4, 2)}
PLAIN = {"key_bias": False, "rotary_grid_size": None, "relative_grid_size": None}
EXPLICIT = {"attention_path": "explicit"}
MLP = {"mlp_dim": 12, "activation": "gelu"}
LORA = {"lora": ATTENTION["lora"]}
RATES = {"attention_dropout": 0.1, "stochastic_depth": 0.1}
BLOCK = {**ATTENTION, **MLP, **RATES, "layer_scale": 0.5, "remat": True, **EXPLICIT}
BLOCK["gated_mlp"] = True
PATCHES = {"embedding_dim": 8, "patch_size": (2, 4), "use_bias": False}
CONVOLUTION = {
    **{"filters": 8, "kernel_size": (3, 5), "strides": (2, 1)},
    **{"symmetric_padding": False, "epsilon": 1e-3, "epsilon_in": "deviation", "folded": True},
}
POOLING = {**MLP, "num_heads": 2, "epsilon": 1e-5, "attention_path": "explicit"}
UNIT = {"filters": 32, "strides": 2, "folded": True}

# Layer, every constructor argument, input shapes, output shape, number of weights.
CASES = [
    (layers.PatchEmbedding, PATCHES, [(6, 8, 3)], (6, 8), 1),
    (layers.ClassToken, {}, [(5, 8)], (6, 8), 1),
    (layers.RegisterTokens, {"num_registers": 3, "stddev": 0.02}, [(5, 8)], (8, 8), 1),
    (
        layers.AddPositionEmbedding,
        {**FREE, "num_prefix_tokens": 1},
        [(7, 8), (8, 6, 3)],
        (7, 8),
        1,
    ),
    (
        layers.AddPositionEmbedding2D,
        {**FREE, "num_prefix_tokens": 1},
        [(7, 8), (8, 6, 3)],
        (7, 8),
        2,
    ),
    (layers.AddSincosPositionEmbedding, FREE, [(6, 8), (8, 6, 3)], (6, 8), 0),
    (layers.CorruptPatches, {}, [(5, 8), (5,)], (5, 8), 1),
    (layers.LayerScale, {"initial_value": 0.5}, [(5, 8)], (5, 8), 1),
    (layers.MultiHeadAttention, {**ATTENTION, **EXPLICIT, **ROTARY}, [(5, 8)] * 2, (5, 8), 12),
    (layers.MultiHeadAttention, {**ATTENTION, **EXPLICIT, **RELATIVE}, [(5, 8)] * 2, (5, 8), 13),
    (layers.MultiHeadAttention, {**ATTENTION, **EXPLICIT, **PLAIN}, [(3, 8), (5, 8)], (3, 8), 11),
    (layers.MlpBlock, {**MLP, **LORA, "dropout": 0.1, "gated": True}, [(5, 8)], (5, 8), 8),
    (layers.MlpBlock, {**MLP, **LORA, "dropout": 0.1, "gated": False}, [(5, 8)], (5, 8), 6),
    (layers.TransformerBlock, {**BLOCK, **ROTARY}, [(5, 8)], (5, 8), 26),
    (layers.TransformerBlock, {**BLOCK, **RELATIVE}, [(5, 8)], (5, 8), 27),
    (
        layers.AxialTransformerBlock,
        # A branch that is dropped for both examples is not trained.
        {**BLOCK, **PLAIN, "grid_size": (2, 3), "stochastic_depth": 0.01},
        [(6, 8)],
        (6, 8),
        50,
    ),
    (layers.StandardizedConv2D, CONVOLUTION, [(6, 8, 3)], (3, 8, 8), 1),
    (layers.BottleneckUnit, UNIT, [(5, 6, 64)], (3, 3, 128), 12),
    (layers.PreActivationBottleneckUnit, UNIT, [(5, 6, 64)], (3, 3, 128), 10),
    (layers.ClassTokenPooling, {"num_tokens": 2}, [(5, 8)], (16,), 0),
    (layers.ClassTokenAndMeanPooling, {"num_prefix_tokens": 2}, [(5, 8)], (16,), 0),
    (layers.DistilledHead, {"units": 3, "activation": "softmax"}, [(16,)], (3,), 4),
    (layers.MultiHeadAttentionPooling, POOLING, [(5, 8)], (8,), 15),
]


# They take seconds; most are made of other layers.
SLOW = (
    layers.MultiHeadAttention,
    *(layers.TransformerBlock, layers.AxialTransformerBlock, layers.MultiHeadAttentionPooling),
    *(layers.BottleneckUnit, layers.PreActivationBottleneckUnit),
)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case[0] in SLOW)) for case in CASES],
    ids=lambda case: case[0].__name__,
)
def test_layer_keeps_the_contract(case, tmp_path):
    check_layer(*case, tmp_path)


def test_every_layer_has_a_case():
    assert sorted({case[0].__name__ for case in CASES}) == sorted(layers.__all__)
