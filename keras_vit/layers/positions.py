"""Position embeddings: added to tokens, rotary (queries and keys) and relative (logits)."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import ROTARY_BASE, as_pair, grid_size
from keras_vit.layers.layer import Layer


class PositionEmbedding(Layer):
    """Base class of layers that add position embeddings.

    With `patch_size`, each call adds embeddings for the size of the images that are passed.
    """

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
        """Raise `ValueError` unless tokens and images fit the arguments of the layer."""
        is_unequal = math.prod(as_pair(self.grid_size, "grid_size")) != num_patches
        if images_shape is None if self.patch_size else is_unequal:
            raise ValueError(
                "`grid_size` must be the rows and columns of the patches, and the layer be called "
                f"with images if it has a `patch_size`. Received: grid_size={self.grid_size}, "
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

    Input and output: `(batch, tokens, width)`. Every token has an embedding, including the class
    token. `keras_vit.resize` interpolates the embeddings for another image size. With `grid_size`
    and `patch_size`, the layer interpolates them in each call.

    Args:
        grid_size: `(rows, columns)` of the patches for which embeddings are stored.
        patch_size: int or `(height, width)` of the part of an image that one token represents.
        num_prefix_tokens: number of tokens before the patches.

    Call arguments:
        tokens: the tokens. The patches come last, row by row.
        images: the images, whose size determines the grid. They are only used with `patch_size`.

    Raises:
        ValueError: if an argument is out of range, or does not fit the tokens or the images.

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
        self.num_prefix_tokens = num_prefix_tokens

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
        """Return embeddings `(1, tokens, width)` for a grid, by default the stored embeddings."""
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
    the first half of the width, and the column embedding takes the second half. Tokens before the
    patches have no row and no column, and do not change.

    Args:
        grid_size: `(rows, columns)` of the patches.
        patch_size: as in `AddPositionEmbedding`.
        num_prefix_tokens: number of tokens before the patches.

    Raises:
        ValueError: if `grid_size` is not a pair of positive integers, or does not match the number
            of patches.

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
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape, images_shape=None):
        num_tokens = tokens_shape[1]
        self.check_call(num_tokens and num_tokens - self.num_prefix_tokens, images_shape)
        (rows, columns), width = self.grid_size, tokens_shape[-1]
        # The initializer of `AddPositionEmbedding`.
        normal = keras.initializers.RandomNormal
        self.rows = self.add_weight(
            name="rows", shape=(rows, 1, width // 2), initializer=normal(stddev=0.02)
        )
        self.columns = self.add_weight(
            name="columns", shape=(1, columns, width // 2), initializer=normal(stddev=0.02)
        )

    def table_of(self, grid=None):
        """Return embeddings `(1, tokens, width)` for a grid, by default for `grid_size`.

        The embeddings of the tokens before the patches are zeros.
        """
        parts = [self.rows, self.columns]
        if grid is not None:
            parts = [interpolate(part, grid[axis], axis) for axis, part in enumerate(parts)]
        table = _joined(*parts, grid or self.grid_size)
        if not self.num_prefix_tokens:
            return table
        return ops.pad(table, ((0, 0), (self.num_prefix_tokens, 0), (0, 0)))


@keras.saving.register_keras_serializable("keras_vit")
class AddSincosPositionEmbedding(PositionEmbedding):
    """Adds sines and cosines of the row and the column of each patch to its token, without weights.

    Input and output: `(batch, rows * columns, width)`, patches row by row.

    Args:
        grid_size: `(rows, columns)` of the patches.
        patch_size: as in `AddPositionEmbedding`.

    Raises:
        ValueError: if `grid_size` is not a pair of positive integers, or does not match the number
            of patches.

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
        """Return embeddings `(1, rows * columns, width)` for a grid, by default for `grid_size`."""
        return self.table if grid is None else sincos_table(grid, self.width)


def sincos_table(grid_size, width):
    """Return sines and cosines of columns and rows, `(1, rows * columns, width)`, in float64.

    The width is a multiple of 4, at least 8.
    """
    # In a graph for images of any size, the grid consists of tensors. The table is then computed in
    # float32, as some runtimes have no float64.
    is_known = all(isinstance(size, int) for size in grid_size)
    module, dtype = (np, "float64") if is_known else (ops, "float32")
    # The last frequency is exactly 1 / 10000.
    frequencies = (1 / 10_000 ** (np.arange(width // 4) / (width // 4 - 1))).astype(dtype)
    angles = [module.outer(module.arange(size, dtype=dtype), frequencies) for size in grid_size]
    rows, columns = (module.concatenate([module.sin(x), module.cos(x)], axis=1) for x in angles)
    return _joined(columns[None], rows[:, None], grid_size, module)


def _joined(first, second, grid, module=ops):
    """Join two halves of the width to a table `(1, rows * columns, width)`."""
    halves = [module.broadcast_to(half, (*grid, half.shape[-1])) for half in (first, second)]
    table = module.concatenate(halves, axis=-1)
    return module.reshape(table, (1, grid[0] * grid[1], table.shape[-1]))


def interpolate(table, size, axis):
    """Interpolate along an axis, linearly and corner-aligned like `resize_position_embedding`."""
    # Positions are multiples of `1 / steps`, computed with integers: if the size does not change,
    # the table stays equal bit for bit.
    last, steps = table.shape[axis] - 1, ops.maximum(size - 1, 1)
    positions = ops.arange(size, dtype="int32") * last
    lower = positions // steps
    share = ops.cast(positions % steps, "float32") / ops.cast(steps, "float32")
    share = ops.reshape(share, (-1, *[1] * (len(table.shape) - 1 - axis)))
    table = ops.cast(table, "float32")
    below, above = (ops.take(table, x, axis) for x in (lower, ops.minimum(lower + 1, last)))
    return below + share * (above - below)


def rotary_tables(grid_size, num_tokens, head_dim):
    """Return cosines and sines of the rotation of each token.

    The last tokens are the patches, row by row. The tokens before the patches are not rotated:
    their cosines are 1 and their sines 0. The angles of a patch are the coordinates of its center,
    in [-1, 1], times frequencies: first the angles of the row, then the angles of the column.

    Args:
        grid_size: `(rows, columns)` of the patches.
        num_tokens: number of all tokens.
        head_dim: width of a head, a multiple of 4.

    Returns:
        Two float32 arrays `(num_tokens, 1, head_dim // 2)`, one angle for each pair of channels.

    Reference:
        Section 3.2 of DINOv3 (arXiv 2508.10104); `DINOv3ViTRopePositionEmbedding` in transformers.

    Example:
    >>> from keras_vit.layers.positions import rotary_tables
    >>> cosines, sines = rotary_tables((2, 3), num_tokens=7, head_dim=8)
    >>> cosines.shape, float(cosines[0].min())
    ((7, 1, 4), 1.0)
    """
    rows, columns = grid_size
    num_prefix_tokens = num_tokens - rows * columns
    frequencies = ROTARY_BASE ** -np.arange(0, 1, 4 / head_dim)
    centers = [(np.arange(n) + 0.5) / n * 2 - 1 for n in grid_size]
    coordinates = np.stack(np.meshgrid(*centers, indexing="ij"), axis=-1).reshape(-1, 2)
    angles = 2 * math.pi * (coordinates[:, :, None] * frequencies).reshape(len(coordinates), -1)
    angles = np.pad(angles, ((num_prefix_tokens, 0), (0, 0)))[:, None]
    return np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


def apply_rotary(heads, cosines, sines):
    """Rotate pairs of channels: channel `i` of one half of a head, and `i` of the other half.

    Args:
        heads: queries or keys `(batch, tokens, heads, head_dim)`.
        cosines: cosines from `rotary_tables`, in the dtype of `heads`.
        sines: sines from `rotary_tables`, in the dtype of `heads`.

    Returns:
        A tensor of the same shape.

    Example:
    >>> from keras_vit.layers.positions import apply_rotary, rotary_tables
    >>> tables = map(ops.convert_to_tensor, rotary_tables((2, 3), num_tokens=7, head_dim=8))
    >>> tuple(apply_rotary(ops.ones((1, 7, 2, 8)), *tables).shape)
    (1, 7, 2, 8)
    """
    first, second = ops.split(heads, 2, axis=-1)
    return ops.concatenate(
        [first * cosines - second * sines, second * cosines + first * sines], axis=-1
    )


def num_offsets(grid_size, num_queries, num_keys):
    """Return the number of different offsets between two patches in a sequence of patches.

    Queries and keys must be the same tokens, with the patches last.

    Example:
    >>> from keras_vit.layers.positions import num_offsets
    >>> num_offsets((2, 3), num_queries=7, num_keys=7)
    11
    """
    patches = math.prod(grid_size)
    if num_queries != num_keys or (num_keys or 0) < patches:
        raise ValueError(
            "`relative_grid_size` must be the rows and columns of the patches, and queries and "
            f"keys be the same tokens. Received: relative_grid_size={tuple(grid_size)}, "
            f"{num_queries} queries, {num_keys} keys"
        )
    return 2 * patches - 1


def relative_bias(query, embedding):
    """Return logits of relative positions, which are added to the logits of the attention.

    For two patches with the indices `p_q` and `p_k` in the sequence of patches, the logit is the
    product of the query and the embedding of the offset `p_q - p_k`. If one of two tokens is not a
    patch, such as the class token, the logit is 0.

    Args:
        query: scaled queries `(batch, tokens, heads, head_dim)`, the patches last.
        embedding: embeddings `(2 * patches - 1, head_dim)`, in the dtype of `query`. Row `i` is
            the embedding of the offset `patches - 1 - i`.

    Returns:
        A tensor `(batch, heads, tokens, tokens)`.

    Example:
    >>> from keras_vit.layers.positions import relative_bias
    >>> tuple(relative_bias(ops.ones((1, 7, 2, 8)), ops.ones((11, 8))).shape)
    (1, 2, 7, 7)
    """
    _, num_tokens, heads, head_dim = query.shape
    patches = (embedding.shape[0] + 1) // 2
    num_prefix = num_tokens - patches
    rows = ops.reshape(ops.swapaxes(query[:, num_prefix:], 1, 2), (-1, head_dim))
    # To pad the product by a column, the embeddings are padded by a row, which costs less.
    keys = ops.transpose(ops.pad(embedding, ((0, 1), (0, 0))))
    logits = ops.reshape(ops.matmul(rows, keys), (-1, heads, patches * 2 * patches))
    # The logit of the patches `q` and `k` is in row `q`, column `patches - 1 - q + k`, so its index
    # in the flat matrix is `patches - 1 + q * (2 * patches - 1) + k`. Cut into rows that are one
    # column shorter, from index `patches - 1` on, the matrix has this logit in row `q`, column `k`
    # ("skewing", section 3.4.1 of Music Transformer, arXiv 1809.04281).
    end = patches - 1 + patches * (2 * patches - 1)
    logits = ops.reshape(logits[:, :, patches - 1 : end], (-1, heads, patches, 2 * patches - 1))
    logits = logits[..., :patches]
    return ops.pad(logits, ((0, 0), (0, 0), (num_prefix, 0), (num_prefix, 0)))
