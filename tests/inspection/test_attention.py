"""Attention scores, rollout and distance, beside the originals' scores and plain NumPy."""

import numpy as np
import pytest

import keras_vit
from keras_vit.data import load
from keras_vit.inspection.analyses import attention_distance, patch_distances
from keras_vit.inspection.report import write_report
from keras_vit.models import vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from tests.fixtures.contract import randomise
from tests.fixtures.reference import case_model, case_outputs
from tests.fixtures.tiny import TINY, images

CASES = (
    *("a_vit_token", "b_vit_token_rep", "i1_bv_gap_learn", "i3_bv_map_learn"),
    *("e2_hybrid_r50_half", "h1_posemb_token_4to6"),
)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CASES[1:]]


@pytest.fixture(scope="module", params=[CASES[0], *SLOW])
def case(request):
    """A model, its images and the originals' scores, an array a block."""
    expected = case_outputs(request.param)
    names = sorted(name for name in expected if name.startswith("attn_0"))
    model = keras_vit.resize(case_model(request.param), expected["images"].shape[1:3])
    # Another model that calls the same layers changes nothing.
    masked_patch_predictor(model)
    return model, expected, [expected[name] for name in names]


@pytest.mark.backends("tensorflow", "jax", "torch")
def test_scores_are_the_originals(case):
    model, expected, scores = case
    maps = keras_vit.attention_maps(model, expected["images"])
    assert list(maps) == [f"block_{index}" for index in range(len(scores))]
    for ours, theirs in zip(maps.values(), scores, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def roll_out(scores):
    """Rollout of one image by its definition, `(tokens, tokens)`."""
    joint = np.eye(scores[0].shape[-1])
    for block in scores:
        matrix = block.astype("float64").mean(axis=0) + np.eye(len(joint))
        for row in matrix:
            row /= row.sum()
        joint = matrix @ joint
    return joint


def test_rollout_is_numpys(case):
    model, expected, scores = case
    rollout = keras_vit.attention_rollout(model, expected["images"])
    for index, ours in enumerate(rollout):
        joint = roll_out([block[index] for block in scores])
        if "attn_map" in expected:
            row = expected["attn_map"][index].mean(axis=0)[0] @ joint
        elif len(joint) == ours.size:
            row = joint.mean(axis=0)
        else:
            row = joint[0, 1:]
        np.testing.assert_allclose(ours, row.reshape(ours.shape), rtol=0, atol=1e-6)


def distance(scores, rows, columns, stride):
    """The distance of each head for one image by its definition."""
    places = np.argwhere(np.ones((rows, columns))) * stride
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    weights = scores[:, -len(places) :, -len(places) :].astype("float64")
    return ((weights * apart).sum(axis=-1) / weights.sum(axis=-1)).mean(axis=-1)


def test_distance_is_numpys(case):
    model, expected, scores = case
    height, width = model.input_shape[1:3]
    rows, columns = keras_vit.attention_rollout(model, expected["images"]).shape[1:]
    stride = height // rows, width // columns
    wanted = [
        np.mean([distance(x, rows, columns, stride) for x in block], axis=0) for block in scores
    ]
    ours = attention_distance(model, expected["images"])
    np.testing.assert_allclose(ours, wanted, rtol=1e-5)


@pytest.mark.slow
def test_heads_without_attention_to_patches_have_no_distance(tmp_path):
    model, batch = vision_transformer(**TINY), images(2, 16, 16, 3)
    token, attention = model.get_layer("class_token"), model.get_layer("block_0").attention
    values = np.resize([1.0, -1.0], 8)
    token.weights[0].assign(values.reshape(1, 1, 8))
    # Whatever the query, its product with the key of the class token is large.
    attention.query.set_weights([np.zeros((8, 8)), np.full(8, 100)])
    attention.key.set_weights([np.tile(values[:, None], 8), np.zeros(8)])
    distances = attention_distance(model, batch)
    np.testing.assert_array_equal(np.isnan(distances), [[True, True], [False, False]])
    assert write_report(model, batch, tmp_path).exists()


# Rectangles, tokens that are no patches, each kind of output token.
OPTIONS = [
    {"num_registers": 2, "dtype": "mixed_bfloat16", "attention_dropout": 0.5},
    {"pooling": "map", "num_registers": 1, "image_size": (8, 16)},
    {"pooling": None, "num_classes": 0, "image_size": (8, 16)},
    {"patch_size": 1, "resnet_stages": (1,), "resnet_width": 32, "image_size": (16, 32)},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_any_model(options):
    model = vision_transformer(**{**TINY, **options})
    randomise(model)
    batch = images(3, *model.input_shape[1:])
    before = model.predict(batch, verbose=0)
    (scores,) = keras_vit.attention_maps(model, batch, blocks=["block_1"], batch_size=2).values()
    assert scores.shape[:2] == (3, 2) and scores.dtype == np.float32
    np.testing.assert_allclose(scores.sum(axis=-1), 1, atol=1e-5)
    height, width = model.input_shape[1:3]
    assert keras_vit.attention_rollout(model, batch).shape == (3, height // 4, width // 4)
    distances = attention_distance(model, batch)
    assert distances.shape == (2, 2) and distances.min() > 0
    assert distances.max() < np.hypot(height, width)
    # The model is what it was.
    np.testing.assert_array_equal(model.predict(batch, verbose=0), before)


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "token", "num_registers": 1},
        {"pooling": "gap", "num_registers": 1},
        # The other tokens of the output do not count.
        {"pooling": "token_gap"},
        {"pooling": "token", "distillation_token": True},
    ],
)
def test_the_output_token_of_each_pooling(options):
    """The rollout of one block is the scores of the output token and the identity."""
    model = vision_transformer(**{**TINY, "depth": 1, **options})
    randomise(model)
    batch = images(1, 16, 16, 3)
    joint = roll_out([keras_vit.attention_maps(model, batch)["block_0"][0]])
    is_mean = options["pooling"] == "gap"
    expected = joint[-16:, -16:].mean(axis=0) if is_mean else joint[0, -16:]
    ours = keras_vit.attention_rollout(model, batch)[0].ravel()
    np.testing.assert_allclose(ours, expected, atol=1e-6)


@pytest.mark.slow
def test_a_dataset_is_gone_through():
    model = vision_transformer(**{**TINY, "image_size": 8})
    digits = load("digits", "validation", image_size=8, batch_size=64)
    batches = np.concatenate([batch for batch, _ in digits.as_numpy_iterator()])
    expected = attention_distance(model, batches)
    np.testing.assert_allclose(attention_distance(model, digits), expected, rtol=1e-5)
    assert len(keras_vit.attention_rollout(model, digits)) == digits.info.num_examples


def test_distances_of_patches_that_are_no_squares():
    np.testing.assert_allclose(patch_distances((2, 2), (3, 4))[0], [0, 4, 3, 5])


def test_a_model_without_attention_is_refused():
    resnet = keras_vit.resnet((1,), 32, num_classes=2, image_size=32)
    with pytest.raises(ValueError, match="`model` must have `TransformerBlock` layers"):
        keras_vit.attention_maps(resnet, images(1, 32, 32, 3))
