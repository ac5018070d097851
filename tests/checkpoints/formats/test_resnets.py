"""Hybrids and BiT: our numbers against the originals', which agree in nothing but the layers."""

import dataclasses
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import features
from keras_vit.layers import BottleneckUnit, PreActivationBottleneckUnit
from keras_vit.layers.bottleneck import BIT, HYBRID
from tests.fixtures.reference import (
    LOGITS_TOLERANCE,
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


@pytest.mark.parametrize("name", [pytest.param(CASES[0], marks=pytest.mark.slow), CASES[1]])
@pytest.mark.parametrize(
    "fields", [("epsilon_in", "conv_epsilon"), ("norm_epsilon",), ("symmetric_padding",)], ids=str
)
def test_reference_tells_the_other_family_apart(name, fields, monkeypatch):
    """With the padding, epsilon or standardization of the other family the numbers are wrong."""
    is_hybrid = name.startswith("e2")
    ours, other = (HYBRID, BIT) if is_hybrid else (BIT, HYBRID)
    wrong = dataclasses.replace(ours, **{field: getattr(other, field) for field in fields})
    unit = BottleneckUnit if is_hybrid else PreActivationBottleneckUnit
    monkeypatch.setattr(unit, "convention", wrong)
    # The package has a function of the module's name.
    module = sys.modules["keras_vit.models.resnet"]
    monkeypatch.setattr(module, "HYBRID" if is_hybrid else "BIT", wrong)
    reference = case_outputs(name)
    error = np.abs(logits(case_model(name), reference) - reference["logits"]).max()
    # The least of them, the standardisation, moves the logits by 2e-2.
    assert error > 100 * LOGITS_TOLERANCE


class PadWithMinusInfinity(keras.layers.Layer):
    def call(self, maps):
        return ops.pad(maps, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-np.inf)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", "torch")
def test_the_pooling_of_bit_is_padded_with_zeros():
    """big_vision's `bit_paper.py` pads with minus infinity; the reference holds that too."""
    reference = case_outputs("k1_bit_resnetv2")
    model = case_model("k1_bit_resnetv2")

    def as_in_big_vision(layer):
        if layer.name == "root_zeros":
            return PadWithMinusInfinity(name=layer.name)
        return layer.__class__.from_config(layer.get_config())

    clone = keras.models.clone_model(model, clone_function=as_in_big_vision)
    clone.set_weights(model.get_weights())
    theirs = logits(clone, reference)
    assert_logits(theirs, reference["alt_bv_bit_paper_logits"])
    assert np.abs(theirs - reference["logits"]).max() > 100 * LOGITS_TOLERANCE
