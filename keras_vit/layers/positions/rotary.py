"""Rotary position embeddings: queries and keys are rotated by the place of their patch."""

import math

import numpy as np
from keras import ops

from keras_vit.core.choices import ROTARY_BASE


def rotary_tables(grid_size, num_tokens, head_dim):
    """Return cosines and sines of the rotation of each token.

    The last tokens are the patches, row by row. The tokens before them are not rotated: their
    cosines are 1 and their sines 0. Coordinates are those of the patches' centers in [-1, 1]; the
    first half of the frequencies belongs to the rows, the second to the columns.

    Args:
        grid_size: `(rows, columns)` of the patches.
        num_tokens: number of all tokens.
        head_dim: width of a head, a multiple of 4.

    Returns:
        Two float32 arrays `(num_tokens, 1, head_dim // 2)`, one angle for each pair of channels.

    Raises:
        ValueError: if there are fewer tokens than patches, or `head_dim` is not a multiple of 4.

    Reference:
        Section 3.2 of DINOv3 (arXiv 2508.10104); `DINOv3ViTRopePositionEmbedding` in transformers.

    Example:
    >>> from keras_vit.layers.positions.rotary import rotary_tables
    >>> cosines, sines = rotary_tables((2, 3), num_tokens=7, head_dim=8)
    >>> cosines.shape, float(cosines[0].min())
    ((7, 1, 4), 1.0)
    """
    rows, columns = grid_size
    num_prefix_tokens = num_tokens - rows * columns
    if num_prefix_tokens < 0 or head_dim % 4:
        raise ValueError(
            "`rotary_grid_size` must be the rows and columns of the patches, and the width of a "
            "head a multiple of 4. Received: "
            f"rotary_grid_size={tuple(grid_size)}, {num_tokens} tokens, heads of width {head_dim}"
        )
    frequencies = ROTARY_BASE ** -np.arange(0, 1, 4 / head_dim)
    places = [(np.arange(n) + 0.5) / n * 2 - 1 for n in grid_size]
    coordinates = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, 2)
    angles = 2 * math.pi * (coordinates[:, :, None] * frequencies).reshape(len(coordinates), -1)
    angles = np.pad(angles, ((num_prefix_tokens, 0), (0, 0)))[:, None]
    return np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


def rotate(heads, cosines, sines):
    """Rotate each pair of channels; the partner of a channel is half a head away.

    Args:
        heads: queries or keys `(batch, tokens, heads, head_dim)`.
        cosines: as `rotary_tables` returns them, in the dtype of `heads`.
        sines: likewise.

    Returns:
        A tensor of the same shape.

    Example:
    >>> from keras_vit.layers.positions.rotary import rotary_tables, rotate
    >>> tables = map(ops.convert_to_tensor, rotary_tables((2, 3), num_tokens=7, head_dim=8))
    >>> tuple(rotate(ops.ones((1, 7, 2, 8)), *tables).shape)
    (1, 7, 2, 8)
    """
    first, second = ops.split(heads, 2, axis=-1)
    return ops.concatenate(
        [first * cosines - second * sines, second * cosines + first * sines], axis=-1
    )
