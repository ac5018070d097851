"""Position embeddings that are added to the tokens."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import as_pair, check_integer, grid_size
from keras_vit.layers.base import Layer
from keras_vit.layers.patches import interpolate


class PositionEmbedding(Layer):
    """Base class of the layers that add a table of embeddings, for `patch_size` that of images."""

    def __init__(
        self,
        grid_size: tuple[int, int] | None,
        patch_size: int | tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.grid_size = None if grid_size is None else as_pair(grid_size, "grid_size")
        self.patch_size = None if patch_size is None else as_pair(patch_size, "patch_size")

    def check_call(self, num_patches, images_shape):
        """Raise `ValueError` unless the layer is called with what it was made for."""
        is_unequal = math.prod(as_pair(self.grid_size, "grid_size")) != num_patches
        if images_shape is None if self.patch_size else is_unequal:
            raise ValueError(
                "`grid_size` must be the rows and columns of the patches, and the call have images "
                f"if there is a `patch_size`. Received: grid_size={self.grid_size}, "
                f"{num_patches} patches, patch_size={self.patch_size}, images of {images_shape}"
            )

    def call(self, tokens, images=None):
        grid = self.patch_size and grid_size(ops.shape(images)[1:3], self.patch_size)
        return tokens + ops.cast(self.table_of(grid), tokens.dtype)

    def compute_output_shape(self, tokens_shape, images_shape=None):
        return tokens_shape


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding(PositionEmbedding):
    """Adds a learnable position embedding to each token.

    Input and output: `(batch, tokens, width)`. Every position has an embedding, also that of the
    class token; `keras_vit.resize` interpolates them for another image size. With the arguments,
    the layer interpolates in each call.

    Args:
        grid_size: `(rows, columns)` of the patches of the stored embeddings.
        patch_size: int or `(height, width)` of the part of an image that one token represents.
        num_prefix_tokens: number of tokens before the patches.

    Call arguments:
        tokens: the tokens, the patches last, row by row.
        images: the images, whose size decides on the grid; only with `patch_size`.

    Raises:
        ValueError: if an argument is out of range, or does not fit the call.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929); initially normal with
        standard deviation 0.02 as in `vit_jax/models_vit.py`.

    Example:
    >>> tuple(AddPositionEmbedding()(np.ones((2, 25, 8))).shape)
    (2, 25, 8)
    """

    def __init__(
        self,
        grid_size: tuple[int, int] | None = None,
        patch_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(grid_size, patch_size, **kwargs)
        self.num_prefix_tokens = check_integer("num_prefix_tokens", num_prefix_tokens, minimum=0)

    def build(self, tokens_shape, images_shape=None):
        _, num_tokens, width = tokens_shape
        if self.patch_size:
            self.check_call(None, images_shape)
            num_tokens = self.num_prefix_tokens + math.prod(self.grid_size)
        self.embedding = self.add_weight(
            name="embedding",
            shape=(1, num_tokens, width),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def table_of(self, grid=None):
        """Return embeddings `(1, tokens, width)` of a grid, by default of `grid_size`."""
        if grid is None:
            return self.embedding
        prefix = ops.cast(self.embedding[:, : self.num_prefix_tokens], "float32")
        patches = self.embedding[0, self.num_prefix_tokens :]
        patches = ops.reshape(patches, (*self.grid_size, patches.shape[-1]))
        for axis in (0, 1):
            patches = interpolate(patches, grid[axis], axis)
        patches = ops.reshape(patches, (1, grid[0] * grid[1], patches.shape[-1]))
        return ops.concatenate([prefix, patches], axis=1)


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding2D(PositionEmbedding):
    """Adds learnable row and column embeddings to each patch token.

    Input and output: `(batch, rows * columns, width)`, patches row by row. The row embedding takes
    the first half of the width, the column embedding the second. Tokens before the patches have no
    row and no column, and stay as they are.

    Args:
        grid_size: `(rows, columns)` of the patches.
        patch_size: as in `AddPositionEmbedding`.
        num_prefix_tokens: number of tokens before the patches.

    Raises:
        ValueError: if `grid_size` is not a pair of positive integers, does not match the number of
            patches, `num_prefix_tokens` is negative, or the width is odd.

    Reference:
        The ablation of position embeddings in appendix D.4 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> tuple(AddPositionEmbedding2D((4, 6))(np.ones((2, 24, 8))).shape)
    (2, 24, 8)
    """

    def __init__(
        self,
        grid_size: tuple[int, int],
        patch_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(grid_size, patch_size, **kwargs)
        self.num_prefix_tokens = check_integer("num_prefix_tokens", num_prefix_tokens, minimum=0)

    def build(self, tokens_shape, images_shape=None):
        num_tokens = tokens_shape[1]
        self.check_call(num_tokens and num_tokens - self.num_prefix_tokens, images_shape)
        (rows, columns), width = self.grid_size, tokens_shape[-1]
        if width % 2:
            raise ValueError(
                "The width of patches must be even for embeddings of rows and columns. "
                f"Received: patches of width {width}"
            )
        # As in `AddPositionEmbedding`.
        normal = keras.initializers.RandomNormal
        self.rows = self.add_weight(
            name="rows", shape=(rows, 1, width // 2), initializer=normal(stddev=0.02)
        )
        self.columns = self.add_weight(
            name="columns", shape=(1, columns, width // 2), initializer=normal(stddev=0.02)
        )

    def table(self, grid=None):
        """Return the embeddings of all positions of a grid, `(1, rows * columns, width)`.

        Zeros for the tokens before the patches come first.
        """
        parts = [self.rows, self.columns]
        if grid is not None:
            parts = [interpolate(part, grid[axis], axis) for axis, part in enumerate(parts)]
        table = _joined(*parts, grid or self.grid_size)
        if not self.num_prefix_tokens:
            return table
        return ops.pad(table, ((0, 0), (self.num_prefix_tokens, 0), (0, 0)))

    table_of = table


@keras.saving.register_keras_serializable("keras_vit")
class AddSincosPositionEmbedding(PositionEmbedding):
    """Adds sines and cosines of its row and column to each patch token, without weights.

    Input and output: `(batch, rows * columns, width)`, patches row by row.

    Args:
        grid_size: `(rows, columns)` of the patches.
        patch_size: as in `AddPositionEmbedding`.

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

    def build(self, tokens_shape, images_shape=None):
        self.check_call(tokens_shape[1], images_shape)
        self.width = tokens_shape[-1]
        self.table = sincos_table(self.grid_size, self.width).astype("float32")

    def table_of(self, grid=None):
        """Return embeddings `(1, rows * columns, width)` of a grid, by default of `grid_size`."""
        return self.table if grid is None else sincos_table(grid, self.width)


def sincos_table(grid_size, width):
    """Return sines and cosines of columns and rows, `(1, rows * columns, width)`, in float64."""
    if width % 4 or width < 8:
        raise ValueError(
            "The width must be a multiple of 4 of at least 8 for sines and cosines of rows and "
            f"columns. Received: width={width}"
        )
    # In a graph for any size, the grid has tensors. Not all runtimes have float64.
    is_known = all(isinstance(size, int) for size in grid_size)
    lib, dtype = (np, "float64") if is_known else (ops, "float32")
    # The last frequency is exactly 1 / 10000.
    frequencies = (1 / 10_000 ** (np.arange(width // 4) / (width // 4 - 1))).astype(dtype)
    angles = [lib.outer(lib.arange(size, dtype=dtype), frequencies) for size in grid_size]
    rows, columns = (lib.concatenate([lib.sin(x), lib.cos(x)], axis=1) for x in angles)
    return _joined(columns[None], rows[:, None], grid_size, lib)


def _joined(first, second, grid, lib=ops):
    """Join two halves of the width to a table `(1, rows * columns, width)`."""
    halves = [lib.broadcast_to(half, (*grid, half.shape[-1])) for half in (first, second)]
    table = lib.concatenate(halves, axis=-1)
    return lib.reshape(table, (1, grid[0] * grid[1], table.shape[-1]))
