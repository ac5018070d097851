"""Class token, register tokens and position embeddings of a token sequence."""

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import as_pair, check_integer
from keras_vit.layers.base import Layer


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(Layer):
    """Prepends a learnable class token to a token sequence.

    Input: `(batch, tokens, width)`. Output: `(batch, 1 + tokens, width)`.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929); initially zero as in
        `vit_jax/models_vit.py`.

    Example:
    >>> tuple(ClassToken()(np.ones((2, 24, 8))).shape)
    (2, 25, 8)
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, input_shape[-1]), initializer="zeros"
        )

    def call(self, tokens):
        return _prepend(self.token, tokens)

    def compute_output_shape(self, input_shape):
        batch_size, num_tokens, width = input_shape
        return (batch_size, num_tokens + 1, width)


@keras.saving.register_keras_serializable("keras_vit")
class RegisterTokens(Layer):
    """Prepends learnable tokens whose outputs are not used to a token sequence.

    Input: `(batch, tokens, width)`. Output: `(batch, num_registers + tokens, width)`.

    Args:
        num_registers: number of tokens.

    Raises:
        ValueError: if `num_registers` is not a positive integer.

    Reference:
        "Vision Transformers Need Registers" (arXiv 2309.16588); `reg_token` in timm.

    Example:
    >>> tuple(RegisterTokens(4)(np.ones((2, 24, 8))).shape)
    (2, 28, 8)
    """

    def __init__(self, num_registers, **kwargs):
        super().__init__(**kwargs)
        self.num_registers = check_integer("num_registers", num_registers, minimum=1)

    def build(self, input_shape):
        self.tokens = self.add_weight(
            name="tokens",
            shape=(1, self.num_registers, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=1e-6),
        )

    def call(self, tokens):
        return _prepend(self.tokens, tokens)

    def compute_output_shape(self, input_shape):
        batch_size, num_tokens, width = input_shape
        return (batch_size, self.num_registers + num_tokens, width)

    def get_config(self):
        return {**super().get_config(), "num_registers": self.num_registers}


def _prepend(learned, tokens):
    shape = (ops.shape(tokens)[0], *learned.shape[1:])
    return ops.concatenate([ops.broadcast_to(ops.cast(learned, tokens.dtype), shape), tokens], 1)


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding(Layer):
    """Adds a learnable position embedding to each token.

    Input and output: `(batch, tokens, width)`. Every position has an embedding, also that of the
    class token; `keras_vit.resize` interpolates them for another image size.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929); initially normal with
        standard deviation 0.02 as in `vit_jax/models_vit.py`.

    Example:
    >>> tuple(AddPositionEmbedding()(np.ones((2, 25, 8))).shape)
    (2, 25, 8)
    """

    def build(self, input_shape):
        self.embedding = self.add_weight(
            name="embedding",
            shape=(1, *input_shape[1:]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, tokens):
        return tokens + ops.cast(self.embedding, tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding2D(Layer):
    """Adds learnable row and column embeddings to each patch token.

    Input and output: `(batch, rows * columns, width)`, patches row by row. The row embedding takes
    the first half of the width, the column embedding the second.

    Args:
        grid_size: `(rows, columns)` of the patches.

    Raises:
        ValueError: if `grid_size` is not a pair of positive integers, does not match the number of
            patches, or the width is odd.

    Reference:
        The ablation of position embeddings in appendix D.4 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> tuple(AddPositionEmbedding2D((4, 6))(np.ones((2, 24, 8))).shape)
    (2, 24, 8)
    """

    def __init__(self, grid_size, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = as_pair(grid_size, "grid_size")

    def build(self, input_shape):
        (rows, columns), (_, num_patches, width) = self.grid_size, input_shape
        if rows * columns != num_patches or width % 2:
            raise ValueError(
                "`grid_size` must be the rows and columns of the patches, and their width even. "
                f"Received: grid_size={self.grid_size}, {num_patches} patches of width {width}"
            )
        # As in `AddPositionEmbedding`.
        normal = keras.initializers.RandomNormal
        self.rows = self.add_weight(
            name="rows", shape=(rows, 1, width // 2), initializer=normal(stddev=0.02)
        )
        self.columns = self.add_weight(
            name="columns", shape=(1, columns, width // 2), initializer=normal(stddev=0.02)
        )

    def table(self):
        """Return the embeddings of all positions, `(1, rows * columns, width)`."""
        rows, columns = self.grid_size
        half = self.rows.shape[-1]
        parts = [
            ops.broadcast_to(part, (rows, columns, half)) for part in (self.rows, self.columns)
        ]
        return ops.reshape(ops.concatenate(parts, axis=-1), (1, rows * columns, 2 * half))

    def call(self, tokens):
        return tokens + ops.cast(self.table(), tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid_size": self.grid_size}


@keras.saving.register_keras_serializable("keras_vit")
class AddSincosPositionEmbedding(Layer):
    """Adds sines and cosines of its row and column to each patch token, without weights.

    Input and output: `(batch, rows * columns, width)`, patches row by row.

    Args:
        grid_size: `(rows, columns)` of the patches.

    Raises:
        ValueError: if `grid_size` is not a pair of positive integers, does not match the number of
            patches, or the width is not a multiple of 4 of at least 8.

    Reference:
        `posemb_sincos_2d` in `big_vision/models/vit.py`; "Better plain ViT baselines for
        ImageNet-1k" (arXiv 2205.01580).

    Example:
    >>> tuple(AddSincosPositionEmbedding((4, 6))(np.ones((2, 24, 8))).shape)
    (2, 24, 8)
    """

    def __init__(self, grid_size, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = as_pair(grid_size, "grid_size")

    def build(self, input_shape):
        (rows, columns), num_patches = self.grid_size, input_shape[1]
        if rows * columns != num_patches:
            raise ValueError(
                "`grid_size` must be the rows and columns of the patches. "
                f"Received: grid_size={self.grid_size}, {num_patches} patches"
            )
        self.table = sincos_table(self.grid_size, input_shape[-1]).astype("float32")

    def call(self, tokens):
        return tokens + ops.cast(self.table, tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "grid_size": self.grid_size}


def sincos_table(grid_size, width):
    """Return sines and cosines of columns and rows, `(1, rows * columns, width)`, in float64."""
    if width % 4 or width < 8:
        raise ValueError(
            "The width must be a multiple of 4 of at least 8 for sines and cosines of rows and "
            f"columns. Received: width={width}"
        )
    rows, columns = np.mgrid[: grid_size[0], : grid_size[1]]
    # The last frequency is exactly 1 / 10000.
    frequencies = 1 / 10_000 ** (np.arange(width // 4) / (width // 4 - 1))
    by_column, by_row = (np.outer(place.ravel(), frequencies) for place in (columns, rows))
    waves = [np.sin(by_column), np.cos(by_column), np.sin(by_row), np.cos(by_row)]
    return np.concatenate(waves, axis=1)[None]
