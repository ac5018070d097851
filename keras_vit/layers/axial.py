"""The Axial Transformer block: attention along the rows of patches, then along the columns."""

from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import as_pair, check_choice
from keras_vit.core.choices import AXES
from keras_vit.layers.base import Layer
from keras_vit.layers.normalization import LAYER_NORM_EPSILON
from keras_vit.layers.transformer import TransformerBlock


class AxisBlock(TransformerBlock):
    """A Transformer block in which a patch attends to the patches of its row, or of its column.

    Args:
        axis: `"rows"` or `"columns"`.
        grid_size: `(rows, columns)` of the patches, which are all tokens.
        **options: as in `TransformerBlock`.
    """

    def __init__(self, axis, grid_size, **options):
        super().__init__(**options)
        check_choice("axis", axis, AXES)
        self.axis = axis
        self.grid_size = as_pair(grid_size, "grid_size")

    def _attend(self, normed, return_attention_scores=False, **options):
        lines = self._lines(normed)
        attended = super()._attend(
            lines, return_attention_scores=return_attention_scores, **options
        )
        if not return_attention_scores:
            return self._in_order(attended)
        attended, scores = attended
        return self._in_order(attended), self._of_all_patches(scores)

    def _lines(self, tokens):
        """Return rows or columns as sequences, `(batch * lines, length, width)`."""
        rows, columns = self.grid_size
        if self.axis == "rows":
            return ops.reshape(tokens, (-1, columns, tokens.shape[-1]))
        grid = ops.reshape(tokens, (-1, rows, columns, tokens.shape[-1]))
        return ops.reshape(ops.swapaxes(grid, 1, 2), (-1, rows, tokens.shape[-1]))

    def _in_order(self, lines):
        """Return the patches of these sequences row by row, `(batch, rows * columns, width)`."""
        rows, columns = self.grid_size
        if self.axis == "columns":
            grid = ops.reshape(lines, (-1, columns, rows, lines.shape[-1]))
            lines = ops.swapaxes(grid, 1, 2)
        return ops.reshape(lines, (-1, rows * columns, lines.shape[-1]))

    def _of_all_patches(self, scores):
        """Return scores between all patches: between different lines they are 0."""
        rows, columns = self.grid_size
        heads, length = scores.shape[1:3]
        lines = rows * columns // length
        scores = ops.reshape(scores, (-1, lines, heads, length, length))
        among = "bxhij,xy->bhxiyj" if self.axis == "rows" else "bxhij,xy->bhixjy"
        scores = ops.einsum(among, scores, ops.eye(lines, dtype=scores.dtype))
        return ops.reshape(scores, (-1, heads, rows * columns, rows * columns))


@keras.saving.register_keras_serializable("keras_vit")
class AxialTransformerBlock(Layer):
    """Attention along the rows of patches and an MLP, then the same along the columns.

    Input and output: `(batch, rows * columns, width)`, patches row by row. The two halves, the
    sublayers `rows` and `columns`, have the layers of a `TransformerBlock`, each its own.

    Args:
        num_heads: number of attention heads; divides the width.
        mlp_dim: width of the hidden layer of both MLPs.
        grid_size: `(rows, columns)` of the patches.
        **kwargs: the options of `TransformerBlock`, for both halves.

    Call arguments:
        tokens: the patches.
        training: whether to apply dropout.

    Raises:
        ValueError: if there are other tokens than patches of the grid, or as in `TransformerBlock`.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        options = {
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "activation": activation,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
            "qkv_bias": qkv_bias,
            "qk_norm": qk_norm,
            "layer_scale": layer_scale,
            "epsilon": epsilon,
            "attention_path": attention_path,
            "gated_mlp": gated_mlp,
            "key_bias": qkv_bias if key_bias is None else key_bias,
        }
        for name, value in options.items():
            setattr(self, name, value)
        self.grid_size = as_pair(grid_size, "grid_size")
        self.rows, self.columns = (
            AxisBlock(axis, grid_size, remat=remat, name=axis, **options, **self.part_options())
            for axis in AXES
        )

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
                "`grid_size` must be the rows and columns of the patches, which are all tokens. "
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
            axis, of the attention along the rows and of that along the columns. Between patches of
            different rows, or of different columns, they are 0.
        """
        scores = self.rows.attention_scores(tokens)
        return scores, self.columns.attention_scores(self.rows(tokens))

    def compute_output_shape(self, input_shape):
        return input_shape
