"""Hybrids and BiT: our numbers against the originals', which agree in nothing but the layers."""

import pytest
from keras import ops

from keras_vit import features
from tests.fixtures.reference import (
    assert_intermediate,
    assert_logits,
    case_model,
    case_outputs,
)

CASES = ("e2_hybrid_r50_half", "k1_bit_resnetv2")
# Our layers, and what the reference calls their outputs.
LAYERS = {
    "e2_hybrid_r50_half": {
        "stage_1_unit_1": "resnet_block1_unit1",
        "stage_1_unit_3": "resnet_block1",
        "stage_2_unit_1": "resnet_block2_unit1",
        "stage_2_unit_4": "resnet_block2",
        "stage_3_unit_1": "resnet_block3_unit1",
        "stage_3_unit_9": "resnet_block3",
        "patch_embedding": "embedding",
        "dropout": "tokens",
        "block_0": "block_00",
        "block_1": "block_01",
        "encoder_norm": "encoded",
        "pooling": "pooled",
    },
    "k1_bit_resnetv2": {
        "root_conv": "root_conv",
        "root_pool": "root_block",
        "stage_1_unit_1": "block1_unit01",
        "stage_1_unit_2": "block1_unit02",
        "stage_2_unit_1": "block2_unit01",
        "stage_3_unit_1": "block3_unit01",
        "stage_4_unit_1": "block4_unit01",
        "norm": "norm_pre_head",
        "pooling": "pre_logits",
    },
}


def logits(model, reference):
    return ops.convert_to_numpy(model(reference["images"]))


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", "torch")
@pytest.mark.parametrize("name", CASES)
def test_logits_and_intermediates(name):
    model, reference = case_model(name), case_outputs(name)
    assert_logits(logits(model, reference), reference["logits"])
    assert_intermediate(features(model, reference["images"]), reference["pre_logits"])
    outputs = features(model, reference["images"], list(LAYERS[name]))
    for ours, theirs in LAYERS[name].items():
        expected = reference[theirs].reshape(outputs[ours].shape)
        # Each image for itself: that of amplitude 5e-4 is there for the norms' epsilon.
        for image in (0, 1):
            assert_intermediate(outputs[ours][image], expected[image])


def test_attention_scores_of_a_hybrid():
    model, reference = case_model("e2_hybrid_r50_half"), case_outputs("e2_hybrid_r50_half")
    tokens = ops.convert_to_tensor(reference["tokens"])
    for index in range(2):
        tokens, scores = model.get_layer(f"block_{index}")(tokens, return_attention_scores=True)
        assert_intermediate(ops.convert_to_numpy(scores), reference[f"attn_{index:02}"])
