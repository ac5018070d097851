"""Relative attention computes what its definition in NumPy does."""

import numpy as np
import pytest

from keras_vit.layers import MultiHeadAttention, TransformerBlock, attention
from keras_vit.layers.attention import ATTENTION_PATHS
from tests.fixtures.contract import to_numpy
from tests.fixtures.peers import numpy_block
from tests.fixtures.tiny import images


def random_weights(layer):
    for index, weight in enumerate(layer.weights):
        weight.assign(np.random.default_rng(index).normal(size=weight.shape, scale=0.5))


@pytest.mark.parametrize(
    ("grid", "num_prefix"), [((2, 3), 0), ((3, 2), 2), ((1, 5), 1), ((1, 1), 1)], ids=str
)
@pytest.mark.parametrize("path", ATTENTION_PATHS)
def test_the_definition(path, grid, num_prefix, monkeypatch):
    monkeypatch.setattr(attention, "has_fused_attention", lambda *_: True)
    num_patches = grid[0] * grid[1]
    layer = MultiHeadAttention(2, attention_path=path, relative_grid_size=grid)
    tokens = images(3, num_prefix + num_patches, 8)
    layer.build(tokens.shape, tokens.shape)
    random_weights(layer)
    outputs = to_numpy(layer(tokens, tokens))
    with_scores, scores = layer(tokens, tokens, return_attention_scores=True)
    weights = numpy_block.weights_of(layer)
    for index, sequence in enumerate(tokens.astype("float64")):
        expected, their_scores = numpy_block.attention(sequence, weights, num_patches)
        np.testing.assert_allclose(outputs[index], expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(to_numpy(with_scores)[index], expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(to_numpy(scores)[index], their_scores, rtol=0, atol=1e-6)


def test_without_embeddings_it_is_plain_attention():
    plain, layer = TransformerBlock(2, 16), TransformerBlock(2, 16, relative_grid_size=(2, 3))
    tokens = images(2, 7, 8)
    expected = to_numpy(plain(tokens))
    layer.build(tokens.shape)
    embedding = layer.attention.relative_embedding
    assert tuple(embedding.shape) == (2 * 6 - 1, 4)
    assert 0.01 < to_numpy(embedding.value).std() < 0.03
    others = [weight for weight in layer.weights if weight is not embedding]
    for weight, value in zip(others, plain.get_weights(), strict=True):
        weight.assign(value)
    assert np.abs(to_numpy(layer(tokens)) - expected).max() > 1e-5
    embedding.assign(np.zeros(embedding.shape))
    np.testing.assert_allclose(to_numpy(layer(tokens)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("queries", "keys"), [(6, 6), (8, 9), (9, 8)], ids=["few", "other keys", "other queries"]
)
def test_tokens_of_another_grid_are_refused(queries, keys):
    layer = MultiHeadAttention(2, relative_grid_size=(4, 2))
    with pytest.raises(ValueError, match="`relative_grid_size` must"):
        layer(images(1, queries, 8), images(1, keys, 8))
