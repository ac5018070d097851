"""Multi-head attention."""

import contextlib
import math
from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import as_pair, check_choice, check_rate
from keras_vit.layers.layer import Dropout, Layer, as_rows
from keras_vit.layers.normalization import LAYER_NORM_EPSILON, layer_norm
from keras_vit.layers.positions import apply_rotary, num_offsets, relative_bias, rotary_tables

# `"fused"` is the backend's fused attention where that is faster, and otherwise the same as
# `"explicit"`: products with the matrix of scores.
ATTENTION_PATHS = ("fused", "explicit")


@keras.saving.register_keras_serializable("keras_vit")
class MultiHeadAttention(Layer):
    """Multi-head dot-product attention between two token sequences of the same width.

    Inputs: query `(batch, queries, width)` and tokens `(batch, keys, width)`. With rotary
    position embeddings, the query must be the tokens or the first of them. With relative position
    embeddings, it must be the tokens.
    Output: `(batch, queries, width)`. With `return_attention_scores=True`, the layer also returns
    the scores `(batch, heads, queries, keys)` in float32.

    If no dropout is applied and no scores are returned, the backend's fused attention is used where
    it is faster than products with the scores: with JAX and torch on accelerators, and with torch
    on CPUs except in bfloat16. One or two queries are never fused. Training with JAX in half
    precision needs an even number of tokens for fused attention. On one GPU, an odd number is
    padded; on several GPUs, it is not fused. The softmax is computed in float32 under every dtype
    policy. The unfused attention of `keras.layers.MultiHeadAttention` computes it in half
    precision.

    Args:
        num_heads: number of heads, a divisor of the width.
        dropout: rate at which single attention weights are dropped.
        qkv_bias: whether query, key and value projections have biases.
        qk_norm: whether LayerNorms over each head's width normalize queries and keys.
        epsilon: epsilon of the LayerNorms.
        attention_path: `"fused"`, or `"explicit"` to always multiply by the matrix of scores.
        key_bias: whether the key projection has a bias; `None` for the value of `qkv_bias`.
        rotary_grid_size: `(rows, columns)` of the patches, which must be the last tokens, if their
            queries and keys are rotated by their position (rotary position embedding); or `None`.
        relative_grid_size: `(rows, columns)` of the patches, which must be the last tokens, if the
            offset of two patches adds a bias to their logit (relative position embedding); or
            `None`.
        lora: see `TransformerBlock`.

    Call arguments:
        query: the tokens that attend.
        tokens: the tokens that are attended to.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well as the output.
        seed: seed of the dropout, from `Dropout.draw`; `None` to draw a seed in the call.

    Raises:
        ValueError: if the heads do not divide the width, `dropout` is not a rate,
            `attention_path` is unknown, or `rotary_grid_size` or `relative_grid_size` does not fit
            the tokens.

    Reference:
        Appendix A of the ViT paper (arXiv 2010.11929). Kernels are initialized as matrices
        `(width, width)`, as in Flax's `MultiHeadDotProductAttention`.
        Relative position embeddings: appendix D.4. The paper does not say whether heads share the
        embeddings. In this layer they do, as in Shaw et al. (arXiv 1803.02155) and in scenic's
        `AxialResNet`. The paper does not define the offset of a class token: it gets no bias.

    Example:
    >>> tokens = np.ones((2, 5, 8), "float32")
    >>> tuple(MultiHeadAttention(num_heads=2)(tokens, tokens).shape)
    (2, 5, 8)
    """

    def __init__(
        self,
        num_heads: int,
        dropout: float = 0.0,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        epsilon: float = LAYER_NORM_EPSILON,
        attention_path: str = "fused",
        key_bias: bool | None = None,
        rotary_grid_size: tuple[int, int] | None = None,
        relative_grid_size: tuple[int, int] | None = None,
        lora: dict | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_rate("dropout", dropout)
        check_choice("attention_path", attention_path, ATTENTION_PATHS)
        self.num_heads = num_heads
        self.dropout = dropout
        self.qkv_bias = qkv_bias
        self.qk_norm = qk_norm
        self.epsilon = epsilon
        self.attention_path = attention_path
        self.key_bias = qkv_bias if key_bias is None else key_bias
        self.rotary_grid_size = rotary_grid_size and as_pair(rotary_grid_size, "rotary_grid_size")
        self.relative_grid_size = relative_grid_size and as_pair(
            relative_grid_size, "relative_grid_size"
        )
        self.lora = lora
        self.score_dropout = Dropout(dropout, name="dropout", **self.sublayer_options())
        if qk_norm:
            options = {"epsilon": epsilon, **self.sublayer_options()}
            self.query_norm = layer_norm(name="query_norm", **options)
            self.key_norm = layer_norm(name="key_norm", **options)

    def build(self, query_shape, tokens_shape):
        width = query_shape[-1]
        if width % self.num_heads:
            raise ValueError(
                f"`num_heads` must be a positive divisor of the width {width}. "
                f"Received: num_heads={self.num_heads!r}"
            )
        head_dim = width // self.num_heads
        self.query = self.dense("query", width, use_bias=self.qkv_bias)
        self.key = self.dense("key", width, use_bias=self.key_bias)
        self.value = self.dense("value", width, use_bias=self.qkv_bias)
        self.output_projection = self.dense("output", width)
        for projection in (self.query, self.key, self.value, self.output_projection):
            projection.build((None, width))
        if self.qk_norm:
            self.query_norm.build((None, None, self.num_heads, head_dim))
            self.key_norm.build((None, None, self.num_heads, head_dim))
        if self.rotary_grid_size:
            self.rotary_tables = rotary_tables(self.rotary_grid_size, tokens_shape[1], head_dim)
        if self.relative_grid_size:
            offsets = num_offsets(self.relative_grid_size, query_shape[1], tokens_shape[1])
            self.relative_embedding = self.add_weight(
                name="relative_embedding",
                shape=(offsets, head_dim),
                # The initializer of `AddPositionEmbedding`.
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

    def call(self, query, tokens, training=None, return_attention_scores=False, seed=None):
        queries, keys = ops.shape(query)[1], ops.shape(tokens)[1]
        query = self._by_head(self.query(as_rows(query)), queries)
        key, value = (self._by_head(f(as_rows(tokens)), keys) for f in (self.key, self.value))
        if self.qk_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary_grid_size:
            query, key = self._rotated(query), self._rotated(key)
        bias = self._bias(query) if self.relative_grid_size else None
        needs_scores = return_attention_scores or (training and self.dropout > 0)
        scores = None
        if needs_scores:
            scores = self._scores(query, key, bias)
            weights = ops.cast(scores, value.dtype)
            weights = self.score_dropout(weights, training=training, seed=seed)
            heads = ops.einsum("bhqk,bkhd->bqhd", weights, value)
        elif self.attention_path == "fused" and has_fused_attention(query, key, training, bias):
            heads = fused_attention(query, key, value, bias, training)
        else:
            heads = explicit_attention(query, key, value, bias)
        width = heads.shape[-2] * heads.shape[-1]
        rows = self.output_projection(ops.reshape(heads, (-1, width)))
        output = ops.reshape(rows, (-1, queries, width))
        return (output, scores) if return_attention_scores else output

    def _by_head(self, rows, num_tokens):
        """Return a matrix with one row per token as `(batch, tokens, heads, head_dim)`."""
        head_dim = rows.shape[-1] // self.num_heads
        return ops.reshape(rows, (-1, num_tokens, self.num_heads, head_dim))

    def _rotated(self, heads):
        """Rotate queries or keys by the positions of the first tokens."""
        tables = (ops.cast(table[: heads.shape[1]], heads.dtype) for table in self.rotary_tables)
        return apply_rotary(heads, *tables)

    def _bias(self, query):
        embedding = ops.cast(self.relative_embedding, query.dtype)
        return relative_bias(query / math.sqrt(query.shape[-1]), embedding)

    def _scores(self, query, key, bias=None):
        logits = ops.einsum("bqhd,bkhd->bhqk", query / math.sqrt(query.shape[-1]), key)
        logits = logits if bias is None else logits + bias
        return ops.softmax(ops.cast(logits, "float32"))

    def compute_output_spec(self, query, tokens, training=None, return_attention_scores=False):
        output = keras.KerasTensor(query.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        scores_shape = (query.shape[0], self.num_heads, query.shape[1], tokens.shape[1])
        return output, keras.KerasTensor(scores_shape, dtype="float32")


def fused_attention(query, key, value, bias=None, training=False):
    """Return the weighted means of the values for each query, `(batch, queries, heads, head_dim)`.

    `bias`, `(batch, heads, queries, keys)`, is added to the logits.
    """
    backend = keras.backend.backend()
    if backend == "jax" and training and needs_padding(query, key):
        if bias is None:
            # These errors mean that cuDNN does not support this GPU or this width of heads.
            with contextlib.suppress(RuntimeError, ValueError):
                return padded_attention(query, key, value)
        return explicit_attention(query, key, value, bias)
    if backend != "torch":
        return ops.dot_product_attention(query, key, value, bias)
    import torch

    # Called directly, because Keras would first copy query, key and value to another layout.
    by_head = (torch.transpose(part, 1, 2) for part in (query, key, value))
    heads = torch.nn.functional.scaled_dot_product_attention(*by_head, attn_mask=bias)
    return torch.transpose(heads, 1, 2)


def padded_attention(query, key, value, implementation="cudnn"):
    """Compute `fused_attention` on JAX, with tokens padded to an even number.

    JAX's own tests check the gradients of `jax.nn.dot_product_attention` with sequence lengths.
    """
    import jax

    batch, lengths = query.shape[0], (query.shape[1], key.shape[1])
    padded = [
        ops.pad(part, ((0, 0), (0, part.shape[1] % 2), (0, 0), (0, 0)))
        for part in (query, key, value)
    ]
    queries, keys = (jax.numpy.full((batch,), length, "int32") for length in lengths)
    heads = jax.nn.dot_product_attention(
        *padded,
        query_seq_lengths=queries,
        key_value_seq_lengths=keys,
        implementation=implementation,
    )
    return heads[:, : lengths[0]]


def explicit_attention(query, key, value, bias=None):
    """Compute `fused_attention` by products with the matrix of scores."""
    backend, dtype = keras.backend.backend(), keras.backend.standardize_dtype(query.dtype)
    query, key, value = (ops.swapaxes(part, 1, 2) for part in (query, key, value))
    if backend == "torch":
        # On torch, products of transposed views take 1.5 times as long.
        query, key, value = (part.contiguous() for part in (query, key, value))
    logits = ops.matmul(query / math.sqrt(query.shape[-1]), ops.swapaxes(key, -1, -2))
    logits = logits if bias is None else logits + bias
    if backend == "jax" and dtype == "float32":
        # Divide the outputs by the sums, not the scores, as in FlashAttention (arXiv 2205.14135).
        # This saves XLA one pass over the scores.
        highest = ops.stop_gradient(ops.max(logits, axis=-1, keepdims=True))
        weights = ops.exp(logits - highest)
        heads = ops.matmul(weights, value) / ops.sum(weights, axis=-1, keepdims=True)
    elif backend == "torch":
        # Torch's softmax computes in float32 internally, without a float32 copy of the scores.
        heads = ops.matmul(ops.softmax(logits), value)
    else:
        weights = ops.softmax(ops.cast(logits, "float32"))
        heads = ops.matmul(ops.cast(weights, dtype), value)
    return ops.swapaxes(heads, 1, 2)


def needs_padding(query, key):
    """Whether JAX can only compute gradients of fused attention if the tokens are padded.

    In half precision on GPUs, cuDNN's attention fails for odd numbers of tokens, since JAX 0.11
    mistakes a placeholder for a bias. Without padding, Keras logs a traceback for each block, and
    XLA computes the attention.
    """
    is_odd = query.shape[1] % 2 == 1 or key.shape[1] % 2 == 1
    is_half = keras.backend.standardize_dtype(query.dtype) != "float32"
    return is_odd and is_half and keras.distribution.list_devices()[0].startswith("gpu")


def has_fused_attention(query, key, training=False, bias=None):
    """Whether the backend has a fused attention that is faster than products with the scores."""
    if query.shape[1] in (1, 2):
        # The matrix of their scores is small. This was not measured on accelerators.
        return False
    backend, dtype = keras.backend.backend(), keras.backend.standardize_dtype(query.dtype)
    if backend == "torch" and dtype == "bfloat16":
        # On CPUs, torch's fused attention takes twice as long as the products with the scores.
        return query.device.type != "cpu"
    if backend == "jax":
        devices = keras.distribution.list_devices()
        if training and needs_padding(query, key):
            # Padded fused attention takes 0.35 of the time of products with the scores, forward and
            # backward (197 tokens, 12 heads of width 64, H200). With it, a training step of
            # ViT-B/16 takes 0.8 of the time (H100). It was not tried on several GPUs.
            return bias is None and len(devices) == 1
        # On CPUs, JAX's fused attention takes longer than products, and refuses float16.
        return not devices[0].startswith("cpu")
    # TensorFlow has no fused attention. Keras's function would compute products, and scale the
    # scores instead of the smaller query.
    return backend != "tensorflow"
