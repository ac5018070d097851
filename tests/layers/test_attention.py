"""The two paths of attention."""

import functools

import keras
import numpy as np
import pytest

from keras_vit.layers import MultiHeadAttention, attention
from keras_vit.layers.attention import ATTENTION_PATHS
from tests.fixtures.contract import to_numpy
from tests.fixtures.tiny import images


def test_both_paths_agree(monkeypatch):
    monkeypatch.setattr(attention, "has_fused_attention", lambda *_: True)
    tokens = images(2, 7, 8)
    fused, explicit = (MultiHeadAttention(2, attention_path=path) for path in ATTENTION_PATHS)
    expected = fused(tokens, tokens)
    explicit.build(tokens.shape, tokens.shape)
    explicit.set_weights(fused.get_weights())
    # With the scores, a third form computes.
    with_scores, _ = explicit(tokens, tokens, return_attention_scores=True)
    for outputs in (explicit(tokens, tokens), with_scores):
        np.testing.assert_allclose(to_numpy(outputs), to_numpy(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.backends("jax", "torch", reason="TensorFlow has no fused attention")
@pytest.mark.parametrize("path", ATTENTION_PATHS)
def test_the_backend_computes_the_fused_path(monkeypatch, path):
    layer, tokens = MultiHeadAttention(2, attention_path=path), images(1, 3, 8)
    monkeypatch.setattr(attention, "has_fused_attention", lambda *_: True)
    calls, fused = [], attention.fused_attention
    monkeypatch.setattr(
        attention, "fused_attention", lambda *arguments: calls.append(1) or fused(*arguments)
    )
    layer(tokens, tokens)
    assert len(calls) == (path == "fused")


@pytest.mark.parametrize(
    ("devices", "dtype", "queries", "keys", "training", "expected"),
    [
        ("gpu:0", "bfloat16", 197, 197, True, True),
        ("gpu:0 gpu:1", "bfloat16", 197, 197, True, False),
        ("gpu:0", "bfloat16", 1, 196, False, False),
        ("gpu:0 gpu:1", "bfloat16", 196, 196, True, True),
        ("gpu:0 gpu:1", "bfloat16", 197, 197, False, True),
        ("gpu:0", "float32", 197, 197, True, True),
        ("tpu:0", "bfloat16", 197, 197, True, True),
        ("cpu:0", "bfloat16", 196, 196, True, False),
    ],
)
def test_the_fused_attention_of_jax(devices, dtype, queries, keys, training, expected, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setattr("keras.distribution.list_devices", devices.split)
    query, key = (keras.KerasTensor((2, count, 2, 8), dtype) for count in (queries, keys))
    assert attention.has_fused_attention(query, key, training) is expected


@pytest.mark.backends("jax", reason="the padding is for JAX's attention")
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (1, 4)])
def test_a_padding_changes_neither_attention_nor_its_gradients(queries, keys):
    import jax

    def loss(computed, *parts):
        return (computed(*parts) ** 2).sum()

    parts = [images(2, count, 2, 8) for count in (queries, keys, keys)]
    padded = functools.partial(attention.padded_attention, implementation="xla")
    results = [
        jax.value_and_grad(functools.partial(loss, computed), argnums=(0, 1, 2))(*parts)
        for computed in (padded, attention.explicit_attention)
    ]
    for ours, expected in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.backends("jax", reason="the padding is for JAX's attention")
def test_without_cudnn_the_products_with_the_scores_are_computed(monkeypatch):
    monkeypatch.setattr(attention, "needs_padding", lambda *_: True)
    parts = [images(2, 5, 2, 8) for _ in range(3)]
    heads = attention.fused_attention(*parts, training=True)
    np.testing.assert_array_equal(heads, attention.explicit_attention(*parts))
    # With it, they are padded; a bias, which would need a padding of its own, is never lost.
    monkeypatch.setattr(attention, "padded_attention", lambda *_: "padded")
    assert attention.fused_attention(*parts, training=True) == "padded"
    bias = images(2, 2, 5, 5)
    heads = attention.fused_attention(*parts, bias, training=True)
    np.testing.assert_array_equal(heads, attention.explicit_attention(*parts, bias))
