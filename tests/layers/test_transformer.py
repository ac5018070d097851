"""The Axial Transformer block computes what its definition in NumPy does."""

import numpy as np
import pytest

from keras_vit.layers import AxialTransformerBlock, TransformerBlock
from tests.fixtures.contract import to_numpy
from tests.fixtures.peers import numpy_block
from tests.fixtures.tiny import images
from tests.layers.test_positions import random_weights

GRID = ROWS, COLUMNS = 2, 3


def axial_block(**options):
    layer = AxialTransformerBlock(2, 16, GRID, **options)
    layer.build((None, ROWS * COLUMNS, 8))
    random_weights(layer)
    return layer


def test_the_definition():
    layer, tokens = axial_block(), images(4, ROWS * COLUMNS, 8)
    weights = numpy_block.weights_of(layer)
    rows, columns = (numpy_block.part_of(weights, axis) for axis in ("rows", "columns"))
    expected = tokens.reshape(4, ROWS, COLUMNS, 8).astype("float64")
    for image in expected:
        for row in range(ROWS):
            image[row] = numpy_block.block(image[row], rows)
        for column in range(COLUMNS):
            image[:, column] = numpy_block.block(image[:, column], columns)
    outputs = to_numpy(layer(tokens)).reshape(expected.shape)
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=2e-5)


def test_a_half_is_a_transformer_block():
    layer = axial_block(qk_norm=True, layer_scale=0.5, gated_mlp=True, qkv_bias=False)
    options = {"qk_norm": True, "layer_scale": 0.5, "gated_mlp": True, "qkv_bias": False}
    block, tokens = TransformerBlock(2, 16, **options), images(ROWS, COLUMNS, 8)
    block.build(tokens.shape)
    block.set_weights(layer.rows.get_weights())
    # The rows of one image, as a batch of sequences.
    halves = to_numpy(layer.rows(tokens.reshape(1, -1, 8))).reshape(tokens.shape)
    np.testing.assert_allclose(halves, to_numpy(block(tokens)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("path", ["fused", "explicit"])
def test_scores(path):
    """They are those of both halves, among all patches."""
    layer, tokens = axial_block(attention_path=path), images(2, ROWS * COLUMNS, 8)
    scores = [to_numpy(half) for half in layer.attention_scores(tokens)]
    middle = to_numpy(layer.rows(tokens))
    places = np.divmod(np.arange(ROWS * COLUMNS), COLUMNS)
    for half, given, found, place in zip(
        (layer.rows, layer.columns), (tokens, middle), scores, places, strict=True
    ):
        assert found.shape == (2, 2, ROWS * COLUMNS, ROWS * COLUMNS)
        expected = np.zeros(found.shape)
        weights = numpy_block.weights_of(half)
        for image, of_image in zip(given.astype("float64"), expected, strict=True):
            normed = numpy_block.norm(image, numpy_block.part_of(weights, "layer_norm_1"))
            for line in range(place.max() + 1):
                members = np.flatnonzero(place == line)
                attention = numpy_block.part_of(weights, "attention")
                _, among = numpy_block.attention(normed[members], attention)
                of_image[np.ix_([0, 1], members, members)] = among
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_stochastic_depth_drops_whole_images():
    layer, tokens = axial_block(stochastic_depth=0.5), images(256, ROWS * COLUMNS, 8)
    moved = np.abs(to_numpy(layer(tokens, training=True)) - tokens) > 0
    dropped = ~moved.any(axis=(1, 2))
    # All four branches are dropped for a sixteenth of the images.
    assert 5 <= dropped.sum() <= 30
    assert moved[~dropped].mean() > 0.99


def test_tokens_of_another_grid_are_refused():
    with pytest.raises(ValueError, match="`grid_size` must be"):
        AxialTransformerBlock(2, 16, GRID)(images(1, 7, 8))


@pytest.mark.parametrize("options", [{}, {"rotary_grid_size": (2, 2)}], ids=str)
def test_first_queries_of_a_block(options):
    block, tokens = TransformerBlock(2, 16, **options), images(2, 6, 8)
    expected, scores = block(tokens, return_attention_scores=True)
    outputs, first = block(tokens, return_attention_scores=True, num_queries=2)
    np.testing.assert_allclose(to_numpy(outputs), to_numpy(expected)[:, :2], rtol=0, atol=1e-6)
    np.testing.assert_allclose(to_numpy(first), to_numpy(scores)[:, :, :2], rtol=0, atol=1e-6)
