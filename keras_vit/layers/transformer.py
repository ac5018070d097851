"""The pre-norm Transformer block, and the axial Transformer block."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_vit.core.arguments import AXES, as_pair, check_rate, constructor_arguments
from keras_vit.layers.attention import MultiHeadAttention
from keras_vit.layers.layer import Dropout, Layer
from keras_vit.layers.mlp import MlpBlock
from keras_vit.layers.normalization import LAYER_NORM_EPSILON, LayerScale, layer_norm


class Seeds(NamedTuple):
    """Dropout seeds for one call of a block; for `None`, the dropout layer draws a seed."""

    scores: Any = None
    attended: Any = None
    mlp: Any = None
    branches: tuple = (None, None)


NO_SEEDS = Seeds()


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(Layer):
    """Self-attention and an MLP, each after a LayerNorm and with a residual connection.

    Input: `(batch, tokens, width)`. Output: the same, or with `num_queries` only the first tokens.
    With `return_attention_scores=True`, the layer also returns the attention scores
    `(batch, heads, queries, tokens)`, in float32.

    Args:
        num_heads: number of attention heads, a divisor of the width.
        mlp_dim: width of the MLP's hidden layer.
        activation: `"gelu_tanh"` (the original's) or `"gelu"` (erf; weights trained in PyTorch).
        dropout: dropout rate after the attention and after each layer of the MLP.
        attention_dropout: rate at which attention weights are dropped.
        stochastic_depth: rate at which a residual branch is dropped for a whole example.
        qkv_bias: whether the query, key and value projections have biases.
        qk_norm: whether LayerNorms over each head's width normalize queries and keys.
        layer_scale: initial value of a learnable factor per channel of each residual branch; `None`
            for no factors.
        epsilon: epsilon of the LayerNorms.
        remat: whether training stores only the block's input, and computes the block again for the
            gradients, with the same dropout seeds. This takes less memory and more time.
        attention_path: `"fused"` for the backend's fused attention where it is faster, or
            `"explicit"`.
        gated_mlp: whether the MLP is a gated linear unit, see `MlpBlock`.
        key_bias: whether the key projection has a bias; `None` for the value of `qkv_bias`.
        rotary_grid_size: see `MultiHeadAttention`.
        relative_grid_size: see `MultiHeadAttention`.
        lora: dictionary from names of dense layers to `(rank, alpha)` of LoRA; `None` for no LoRA.
            The names are `"query"`, `"key"`, `"value"`, `"output"` (of the attention), `"dense_0"`
            and `"dense_1"`, or in a gated MLP `"gate"`, `"up"` and `"down"`.

    Call arguments:
        tokens: the token sequence.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention scores as well as the output.
        num_queries: number of first tokens that attend to all tokens and are returned; `None` for
            all tokens. With `relative_grid_size`, it must be `None`.

    Raises:
        ValueError: if the heads do not divide the width, a rate is not in [0, 1), `activation` or
            `attention_path` is unknown, or `rotary_grid_size` or `relative_grid_size` does not fit
            the tokens.

    Reference:
        Equations 2 and 3 of the ViT paper (arXiv 2010.11929), `Encoder1DBlock` in
        `vit_jax/models_vit.py`; stochastic depth as in AugReg (arXiv 2106.10270).

    Example:
    >>> block = TransformerBlock(num_heads=2, mlp_dim=32)
    >>> tokens, scores = block(np.ones((2, 5, 8), "float32"), return_attention_scores=True)
    >>> tuple(tokens.shape), tuple(scores.shape)
    ((2, 5, 8), (2, 2, 5, 5))
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        activation: str = "gelu_tanh",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        layer_scale: float | None = None,
        epsilon: float = LAYER_NORM_EPSILON,
        remat: bool = False,
        attention_path: str = "fused",
        gated_mlp: bool = False,
        key_bias: bool | None = None,
        rotary_grid_size: tuple[int, int] | None = None,
        relative_grid_size: tuple[int, int] | None = None,
        lora: dict | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_rate("dropout", dropout)
        check_rate("attention_dropout", attention_dropout)
        check_rate("stochastic_depth", stochastic_depth)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.stochastic_depth = stochastic_depth
        self.qkv_bias = qkv_bias
        self.qk_norm = qk_norm
        self.layer_scale = layer_scale
        self.epsilon = epsilon
        self.remat = remat
        self.attention_path = attention_path
        options = self.sublayer_options()
        self.layer_norm_1 = layer_norm(name="layer_norm_1", epsilon=epsilon, **options)
        self.attention = MultiHeadAttention(
            num_heads,
            dropout=attention_dropout,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            epsilon=epsilon,
            attention_path=attention_path,
            key_bias=key_bias,
            rotary_grid_size=rotary_grid_size,
            relative_grid_size=relative_grid_size,
            lora=lora,
            name="attention",
            **options,
        )
        self.key_bias = self.attention.key_bias
        self.rotary_grid_size = self.attention.rotary_grid_size
        self.relative_grid_size = self.attention.relative_grid_size
        self.gated_mlp = gated_mlp
        self.lora = lora
        self.dropout_layer = Dropout(dropout, name="dropout", **options)
        self.layer_norm_2 = layer_norm(name="layer_norm_2", epsilon=epsilon, **options)
        self.mlp = MlpBlock(mlp_dim, activation, dropout, gated_mlp, lora, name="mlp", **options)
        # One random number per example decides for all its tokens and channels.
        self.drop_branch = Dropout(
            stochastic_depth, noise_shape=(None, 1, 1), name="stochastic_depth", **options
        )
        if layer_scale is not None:
            self.layer_scale_1 = LayerScale(layer_scale, name="layer_scale_1", **options)
            self.layer_scale_2 = LayerScale(layer_scale, name="layer_scale_2", **options)

    def build(self, input_shape):
        self.layer_norm_1.build(input_shape)
        self.attention.build(input_shape, input_shape)
        self.layer_norm_2.build(input_shape)
        self.mlp.build(input_shape)
        if self.layer_scale is not None:
            self.layer_scale_1.build(input_shape)
            self.layer_scale_2.build(input_shape)

    def call(self, tokens, training=None, return_attention_scores=False, num_queries=None):
        options = (training, return_attention_scores, num_queries)
        if not (self.remat and training):
            return self._transform(tokens, NO_SEEDS, *options)
        # The seeds are drawn before `keras.remat`. Drawn inside it, they would be different in the
        # recomputation, and on JAX the seed generator would store a value of the inner trace.
        seeds = self._draw_seeds()

        def transform(tokens):
            return self._transform(tokens, seeds, *options)

        return keras.remat(transform)(tokens)

    def attention_scores(self, tokens: Any) -> Any:
        """Return the attention scores of the block without computing its output.

        Args:
            tokens: the block's input, `(batch, tokens, width)`.

        Returns:
            A float32 tensor `(batch, heads, tokens, tokens)` that sums to 1 over the last axis.
        """
        return self._attend(self.layer_norm_1(tokens), return_attention_scores=True)[1]

    def _attend(self, normed, num_queries=None, **options):
        """Return the attention to all tokens; a subclass may attend within groups of tokens."""
        return self.attention(_first(normed, num_queries), normed, **options)

    def _draw_seeds(self):
        return Seeds(
            scores=self.attention.score_dropout.draw(),
            attended=self.dropout_layer.draw(),
            mlp=(self.mlp.dropout_layer.draw(), self.mlp.dropout_layer.draw()),
            branches=(self.drop_branch.draw(), self.drop_branch.draw()),
        )

    def _transform(self, tokens, seeds, training, return_attention_scores, num_queries):
        attended = self._attend(
            self.layer_norm_1(tokens),
            num_queries=num_queries,
            training=training,
            return_attention_scores=return_attention_scores,
            seed=seeds.scores,
        )
        attended, scores = attended if return_attention_scores else (attended, None)
        attended = self.dropout_layer(attended, training=training, seed=seeds.attended)
        if self.layer_scale is not None:
            attended = self.layer_scale_1(attended)
        tokens = _first(tokens, num_queries) + self.drop_branch(
            attended, training=training, seed=seeds.branches[0]
        )
        hidden = self.mlp(self.layer_norm_2(tokens), training=training, seeds=seeds.mlp)
        if self.layer_scale is not None:
            hidden = self.layer_scale_2(hidden)
        tokens = tokens + self.drop_branch(hidden, training=training, seed=seeds.branches[1])
        return (tokens, scores) if return_attention_scores else tokens

    def compute_output_spec(
        self, tokens, training=None, return_attention_scores=False, num_queries=None
    ):
        queries = _first(tokens, num_queries)
        return self.attention.compute_output_spec(
            queries, tokens, return_attention_scores=return_attention_scores
        )


def _first(tokens, count):
    """Return the first tokens, or all if `count` is `None`."""
    return tokens if count is None else tokens[:, :count]


class AxisBlock(TransformerBlock):
    """A Transformer block in which a patch attends to the patches of its row, or of its column.

    Args:
        axis: `"rows"` or `"columns"`.
        grid_size: `(rows, columns)` of the patches; there must be no other tokens.
        **options: as in `TransformerBlock`.
    """

    def __init__(self, axis, grid_size, **options):
        super().__init__(**options)
        self.axis = axis
        self.grid_size = as_pair(grid_size, "grid_size")

    # `num_queries` is always `None`, because there is no class token.
    def _attend(self, normed, num_queries=None, return_attention_scores=False, **options):
        lines = self._lines(normed)
        attended = super()._attend(
            lines, return_attention_scores=return_attention_scores, **options
        )
        if not return_attention_scores:
            return self._in_order(attended)
        attended, scores = attended
        return self._in_order(attended), self._scores_of_all_pairs(scores)

    def _lines(self, tokens):
        """Return each row, or each column, as a sequence, `(batch * lines, length, width)`."""
        rows, columns = self.grid_size
        if self.axis == "rows":
            return ops.reshape(tokens, (-1, columns, tokens.shape[-1]))
        grid = ops.reshape(tokens, (-1, rows, columns, tokens.shape[-1]))
        return ops.reshape(ops.swapaxes(grid, 1, 2), (-1, rows, tokens.shape[-1]))

    def _in_order(self, lines):
        """Undo `_lines`: return the patches row by row, `(batch, rows * columns, width)`."""
        rows, columns = self.grid_size
        if self.axis == "columns":
            grid = ops.reshape(lines, (-1, columns, rows, lines.shape[-1]))
            lines = ops.swapaxes(grid, 1, 2)
        return ops.reshape(lines, (-1, rows * columns, lines.shape[-1]))

    def _scores_of_all_pairs(self, scores):
        """Return scores between all patches: 0 for patches of different rows, or columns."""
        rows, columns = self.grid_size
        heads, length = scores.shape[1:3]
        lines = rows * columns // length
        scores = ops.reshape(scores, (-1, lines, heads, length, length))
        subscripts = "bxhij,xy->bhxiyj" if self.axis == "rows" else "bxhij,xy->bhixjy"
        scores = ops.einsum(subscripts, scores, ops.eye(lines, dtype=scores.dtype))
        return ops.reshape(scores, (-1, heads, rows * columns, rows * columns))


@keras.saving.register_keras_serializable("keras_vit")
class AxialTransformerBlock(Layer):
    """Attention within rows of patches and an MLP, then attention within columns and an MLP.

    Input and output: `(batch, rows * columns, width)`, patches row by row. The two halves are
    Transformer blocks with separate weights, the sublayers `rows` and `columns`.

    Args:
        num_heads: number of attention heads, a divisor of the width.
        mlp_dim: width of the hidden layer of both MLPs.
        grid_size: `(rows, columns)` of the patches.
        **options: further arguments of `TransformerBlock`, for both halves.

    Call arguments:
        tokens: the patches.
        training: whether to apply dropout.

    Raises:
        ValueError: if the number of tokens is not the number of patches of the grid, or as in
            `TransformerBlock`.

    Reference:
        Axial-ViT in appendix D.6 of the ViT paper (arXiv 2010.11929), whose code is not published;
        "Axial Attention in Multidimensional Transformers" (arXiv 1912.12180).

    Example:
    >>> from keras_vit.layers import AxialTransformerBlock
    >>> block = AxialTransformerBlock(num_heads=2, mlp_dim=32, grid_size=(4, 6))
    >>> tuple(block(np.ones((2, 24, 8), "float32")).shape)
    (2, 24, 8)
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        grid_size: tuple[int, int],
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        options |= {"num_heads": num_heads, "mlp_dim": mlp_dim, "grid_size": grid_size}
        self.rows, self.columns = (
            AxisBlock(axis, name=axis, **options, **self.sublayer_options()) for axis in AXES
        )
        self.grid_size = self.rows.grid_size

    def get_config(self):
        options = constructor_arguments(self.rows)
        del options["axis"]
        return {**options, **keras.layers.Layer.get_config(self)}

    @property
    def remat(self):
        """Whether training stores only the inputs of the two halves."""
        return self.rows.remat

    @remat.setter
    def remat(self, remat):
        self.rows.remat = self.columns.remat = remat

    def build(self, input_shape):
        rows, columns = self.grid_size
        if input_shape[1] != rows * columns:
            raise ValueError(
                "`grid_size` must be the grid of the patches, and there must be no other tokens. "
                f"Received: grid_size={self.grid_size}, {input_shape[1]} tokens"
            )
        self.rows.build(input_shape)
        self.columns.build(input_shape)

    def call(self, tokens, training=None):
        return self.columns(self.rows(tokens, training=training), training=training)

    def attention_scores(self, tokens: Any) -> tuple[Any, Any]:
        """Return the attention scores of both halves.

        Args:
            tokens: the block's input, `(batch, rows * columns, width)`.

        Returns:
            A pair of float32 tensors `(batch, heads, patches, patches)` that sum to 1 over the last
            axis. In the first tensor, scores between patches of different rows are 0. In the second
            tensor, scores between patches of different columns are 0.
        """
        scores = self.rows.attention_scores(tokens)
        return scores, self.columns.attention_scores(self.rows(tokens))

    def compute_output_shape(self, input_shape):
        return input_shape
