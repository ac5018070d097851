"""Our numbers against those of vit_jax and big_vision."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.models import features, resize
from tests.reference import (
    LOGITS_TOLERANCE,
    assert_intermediate,
    build_case,
    load_case,
)

CASES = ["a_vit_token", "b_vit_token_rep", "i1_bv_gap_learn", "i3_bv_map_learn"]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    config, weights, outputs = load_case(request.param)
    return build_case(config, weights), outputs


def predict(model, images):
    return ops.convert_to_numpy(model(images))


def layer_norms(model):
    names = ("layer_norm_1", "layer_norm_2", "layer_norm")
    parts = [getattr(layer, name, None) for layer in model.layers for name in names]
    norms = [*parts, model.get_layer("encoder_norm")]
    return [norm for norm in norms if isinstance(norm, keras.layers.LayerNormalization)]


def test_logits(case):
    model, reference = case
    logits = predict(model, reference["images"])
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=LOGITS_TOLERANCE)


def test_tokens_and_block_outputs(case):
    model, reference = case
    blocks = [name for name in reference if name.startswith("block_")]
    ours = [f"block_{int(name.removeprefix('block_'))}" for name in blocks]
    layers = ["patch_embedding", "dropout", *ours, "encoder_norm"]
    outputs = features(model, reference["images"], layers)
    embedding = reference["embedding" if "embedding" in reference else "stem"]
    assert_intermediate(
        outputs["patch_embedding"], embedding.reshape(outputs["patch_embedding"].shape)
    )
    assert_intermediate(outputs["dropout"], reference["tokens"])
    assert_intermediate(outputs["encoder_norm"], reference["encoded"])
    for theirs, our in zip(blocks, ours, strict=True):
        assert_intermediate(outputs[our], reference[theirs])


def test_representation(case):
    model, reference = case
    assert_intermediate(features(model, reference["images"]), reference["pre_logits"])


def test_attention_scores(case):
    model, reference = case
    tokens = ops.convert_to_tensor(reference["tokens"])
    for index in range(3):
        tokens, scores = model.get_layer(f"block_{index}")(tokens, return_attention_scores=True)
        assert_intermediate(ops.convert_to_numpy(scores), reference[f"attn_{index:02}"])
        assert_intermediate(ops.convert_to_numpy(tokens), reference[f"block_{index:02}"])
    if "attn_map" in reference:
        pooling = model.get_layer("pooling")
        encoded = ops.convert_to_tensor(reference["encoded"])
        pooled, scores = pooling(encoded, return_attention_scores=True)
        assert_intermediate(ops.convert_to_numpy(scores), reference["attn_map"])
        assert_intermediate(ops.convert_to_numpy(pooled), reference["head_input"])


def test_reference_tells_the_erf_gelu_apart():
    for name in CASES:
        config, weights, reference = load_case(name)
        logits = predict(build_case(config, weights, activation="gelu"), reference["images"])
        assert np.abs(logits - reference["logits"]).max() > LOGITS_TOLERANCE


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12, 1e-3])
def test_reference_tells_another_epsilon_apart(epsilon):
    for name in CASES:
        config, weights, reference = load_case(name)
        model = build_case(config, weights)
        norms = layer_norms(model)
        assert len(norms) >= 7
        for norm in norms:
            norm.epsilon = epsilon
        logits = predict(model, reference["images"])
        assert np.abs(logits - reference["logits"]).max() > LOGITS_TOLERANCE


@pytest.mark.parametrize("name", ["h1_posemb_token_4to6", "h2_posemb_gap_4to6"])
def test_resized_model(name):
    config, weights, reference = load_case(name)
    original_size = {**config, "image_size": [32, 32]}
    model = resize(build_case(original_size, weights), 48)
    table = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    np.testing.assert_allclose(table, reference["pos_embedding_resized"], rtol=0, atol=1e-6)
    logits = predict(model, reference["images"])
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=LOGITS_TOLERANCE)
