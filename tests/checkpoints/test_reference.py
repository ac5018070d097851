"""Our numbers against those of vit_jax, big_vision, timm and transformers, from their files."""

import numpy as np
import pytest
from keras import ops

from keras_vit import features
from keras_vit.checkpoints import from_checkpoint
from keras_vit.models import resize
from tests.fixtures.reference import (
    LOGITS_TOLERANCE,
    assert_intermediate,
    assert_logits,
    case_model,
    case_outputs,
    case_path,
)

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")

FLAX_CASES = [
    "a_vit_token",
    "a2_vit_token_linen_names",
    "b_vit_token_rep",
    "g_vit_token_bf16",
    "i1_bv_gap_learn",
    "i3_bv_map_learn",
]
TORCH_CASES = ["timm_token", "timm_gap_fcnorm", "hf_classifier", "hf_tf_h5_classifier"]
TRANSFORMERS_CASES = ["hf_tf_h5_classifier", "hf_vit_imagenet_mean_std", "hf_dinov2_classifier"]
# Their weights are small: the tanh GELU moves the logits by no more than 3e-5.
TORCH_TOLERANCE = 5e-6
# To guard the conventions, one case per weights and images is enough.
GUARDED_CASES = ["a_vit_token", "b_vit_token_rep", "i1_bv_gap_learn", "i3_bv_map_learn"]


@pytest.fixture(scope="module", params=FLAX_CASES)
def case(request):
    return case_model(request.param), case_outputs(request.param)


@pytest.fixture(scope="module", params=TORCH_CASES)
def torch_case(request):
    return case_model(request.param), case_outputs(request.param)


def predict(model, images):
    return ops.convert_to_numpy(model(images))


def test_logits(case):
    model, reference = case
    assert_logits(predict(model, reference["images"]), reference["logits"])


def test_logits_of_weights_trained_in_pytorch(torch_case):
    model, reference = torch_case
    logits = predict(model, reference["images"])
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=TORCH_TOLERANCE)


# Images of the originals are random, and some values large.
@pytest.mark.filterwarnings("ignore:Images must be scaled")
def test_tokens_of_weights_trained_in_pytorch(torch_case):
    model, reference = torch_case
    images = reference["images"]
    has_norm = "encoder_norm" in [layer.name for layer in model.layers]
    # timm's `forward_features` ends before the pooling, even if the norm is after it.
    last = "encoder_norm" if has_norm else "block_2"
    outputs = features(model, images, ["dropout", "block_2", last])
    if "tokens" in reference:
        assert_intermediate(outputs[last], reference["tokens"])
    if "hidden_state_last" in reference:
        # The last of transformers' `hidden_states`, before its LayerNorm.
        assert_intermediate(outputs["block_2"], reference["hidden_state_last"])
    if "embeddings" in reference:
        assert_intermediate(outputs["dropout"], reference["embeddings"])
    if "pre_logits" in reference:
        assert_intermediate(features(model, images), reference["pre_logits"])


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


@pytest.mark.parametrize("name", TRANSFORMERS_CASES)
def test_a_directory_alone_gives_the_outputs_and_the_names_of_classes(name, caplog):
    model, reference = case_model(name), case_outputs(name)
    assert_logits(predict(model, reference["images"]), reference["logits"])
    if "last_hidden_state" in reference:
        encoded = features(model, reference["images"], ["encoder_norm"])["encoder_norm"]
        assert_intermediate(encoded, reference["last_hidden_state"])
    assert model.class_names == ("cat", "dog", "owl")
    assert not caplog.messages


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


FLAX_OPTIONS = [{"activation": "gelu"}, *({"epsilon": value} for value in (1e-5, 1e-12, 1e-3))]
TORCH_OPTIONS = [{"activation": "gelu_tanh"}, {"epsilon": 1e-4}]


@pytest.mark.parametrize(
    ("names", "tolerance", "option"),
    [(GUARDED_CASES, LOGITS_TOLERANCE, option) for option in FLAX_OPTIONS]
    + [(TORCH_CASES, TORCH_TOLERANCE, option) for option in TORCH_OPTIONS]
    + [
        (["hf_dinov2_classifier"], LOGITS_TOLERANCE, option)
        for option in ({"activation": "gelu_tanh"}, {"epsilon": 1e-2})
    ],
    ids=str,
)
def test_other_conventions_give_other_logits(names, tolerance, option):
    for name in names:
        reference = case_outputs(name)
        logits = predict(case_model(name, **option), reference["images"])
        assert np.abs(logits - reference["logits"]).max() > tolerance


@pytest.mark.parametrize("how", ["while loading", "afterwards"])
@pytest.mark.parametrize("name", ["h1_posemb_token_4to6", "h2_posemb_gap_4to6"])
def test_resized_model(name, how):
    reference = case_outputs(name)
    if how == "while loading":
        model = from_checkpoint(case_path(name), image_size=48)
    else:
        model = resize(from_checkpoint(case_path(name)), 48)
    table = ops.convert_to_numpy(model.get_layer("position_embedding").embedding.value)
    np.testing.assert_allclose(table, reference["pos_embedding_resized"], rtol=0, atol=1e-6)
    assert_logits(predict(model, reference["images"]), reference["logits"])
