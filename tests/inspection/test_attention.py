"""Attention scores, rollout and distance, beside the originals' scores and plain NumPy."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.data import load
from keras_vit.inspection.analyses import attention_distance, patch_distances
from keras_vit.inspection.report import write_report
from keras_vit.layers import TransformerBlock
from keras_vit.models import vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from tests.fixtures.contract import randomise
from tests.fixtures.reference import case_model, case_outputs
from tests.fixtures.tiny import TINY, images

VITS = ("a_vit_token", "b_vit_token_rep", "i1_bv_gap_learn", "i3_bv_map_learn")


@pytest.fixture(scope="module", params=(*VITS, "e2_hybrid_r50_half", "h1_posemb_token_4to6"))
def case(request):
    """A model, its images and the originals' scores, an array a block."""
    expected = case_outputs(request.param)
    names = sorted(name for name in expected if name.startswith("attn_0"))
    model = keras_vit.resize(case_model(request.param), expected["images"].shape[1:3])
    return model, expected, [expected[name] for name in names]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_distance_of_uniform_attention():
    """Its closed form: each offset comes (14 - |down|) (14 - |right|) times."""
    model = vision_transformer(**{**TINY, "patch_size": 2, "image_size": 28})
    for block in model.layers:
        if isinstance(block, TransformerBlock):
            block.attention.query.kernel.assign(np.zeros(block.attention.query.kernel.shape))
    offsets = np.arange(-13, 14)
    counts = np.outer(14 - abs(offsets), 14 - abs(offsets))
    expected = 2 * (counts * np.hypot(*np.meshgrid(offsets, offsets))).sum() / 14**4
    ours = attention_distance(model, images(2, 28, 28, 3))
    np.testing.assert_allclose(ours, np.full((2, 2), expected), rtol=1e-5)


def heads_on_class_token(*heads):
    """A model in whose first block such heads attend to the class token alone."""
    model = vision_transformer(**TINY)
    token, attention = model.get_layer("class_token"), model.get_layer("block_0").attention
    width = token.weights[0].shape[-1]
    values = np.resize([1.0, -1.0], width)
    token.weights[0].assign(values.reshape(1, 1, width))
    query, key = (np.zeros(attention.key.kernel.shape) for _ in range(2))
    bias = np.zeros(attention.query.bias.shape)
    for head in heads:
        of_head = slice(head * width // 2, (head + 1) * width // 2)
        key[:, of_head] = values[:, None]
        bias[of_head] = 100
    attention.query.set_weights([query, bias])
    attention.key.set_weights([key, np.zeros(bias.shape)])
    return model


@pytest.mark.slow
def test_a_head_without_attention_to_patches_has_no_distance(tmp_path):
    model, batch = heads_on_class_token(1), images(2, 16, 16, 3)
    distances = attention_distance(model, batch)
    np.testing.assert_array_equal(np.isnan(distances), [[False, True], [False, False]])
    # The head alone is changed.
    expected = attention_distance(heads_on_class_token(), batch)[0, 0]
    np.testing.assert_allclose(distances[0, 0], expected, rtol=1e-6)
    assert write_report(heads_on_class_token(0, 1), batch, tmp_path).exists()


# Rectangles, tokens that are no patches, each kind of output token.
OPTIONS = [
    {"num_registers": 2, "dtype": "mixed_bfloat16", "attention_dropout": 0.5},
    pytest.param(
        {"pooling": "gap", "class_token": True, "num_registers": 1}, marks=pytest.mark.large
    ),
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
    calls = [len(layer._inbound_nodes) for layer in model.layers]
    maps = keras_vit.attention_maps(model, batch, blocks=["block_1"], batch_size=2)
    (scores,) = maps.values()
    tokens = scores.shape[-1]
    assert scores.shape == (3, 2, tokens, tokens) and scores.dtype == np.float32
    np.testing.assert_allclose(scores.sum(axis=-1), 1, atol=1e-5)
    rollout = keras_vit.attention_rollout(model, batch)
    height, width = model.input_shape[1:3]
    assert rollout.shape == (3, height // 4, width // 4) and rollout.min() >= 0
    assert rollout.sum(axis=(1, 2)).min() > 0 and rollout.sum(axis=(1, 2)).max() < 1.001
    farthest = np.hypot(height, width)
    distances = attention_distance(model, batch)
    assert distances.shape == (2, 2) and 0 < distances.min() <= distances.max() < farthest
    # The model is what it was.
    np.testing.assert_array_equal(model.predict(batch, verbose=0), before)
    assert [len(layer._inbound_nodes) for layer in model.layers] == calls


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
def test_a_model_that_shares_its_layers():
    model = vision_transformer(**TINY)
    randomise(model)
    before = keras_vit.attention_maps(model, images(1, 16, 16, 3))
    masked_patch_predictor(model)
    after = keras_vit.attention_maps(model, images(1, 16, 16, 3))
    np.testing.assert_allclose(after["block_1"], before["block_1"], atol=1e-6)


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


@pytest.mark.parametrize(
    "function", [keras_vit.attention_maps, keras_vit.attention_rollout, attention_distance]
)
def test_models_without_attention(function):
    with pytest.raises(ValueError, match="`model` must have `TransformerBlock` layers"):
        function(keras_vit.resnet((1,), 32, num_classes=2, image_size=32), images(1, 32, 32, 3))
    with pytest.raises(ValueError, match="`model` must be a Vision Transformer"):
        function(keras.Sequential([keras.Input((16, 16, 3))]), images(1, 16, 16, 3))
