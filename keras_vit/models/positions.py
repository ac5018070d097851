"""Interpolation of position embeddings for another grid of patches."""

import math

import numpy as np
import scipy.ndimage

from keras_vit.core.arguments import as_pair, check_choice

METHODS = ("bilinear", "bicubic")


def resize_position_embedding(
    table, target_grid, source_grid=None, num_prefix_tokens=1, method="bilinear"
):
    """Interpolate position embeddings in 2-D, according to their position in the image.

    The table has shape `(1, prefix + rows * columns, width)`, the result
    `(1, prefix + target_rows * target_columns, width)` and the table's dtype. The rows of prefix
    tokens (the class token) are copied unchanged.

    Args:
        table: NumPy array of position embeddings.
        target_grid: `(rows, columns)` of patches of the result.
        source_grid: `(rows, columns)` of patches of the table; `None` if it is square.
        num_prefix_tokens: tokens before the patches: 1 with a class token, 0 without.
        method: `"bilinear"`, corner-aligned as in the original, or `"bicubic"`, antialiased with
            half-pixel centers as in timm.

    Returns:
        A NumPy array.

    Raises:
        ValueError: if the table does not have the rows of the source grid, `target_grid` is not a
            pair of positive integers, or `method` is unknown.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929); `interpolate_posembed` in
        `vit_jax/checkpoint.py`, without the zeros that SciPy's `mode="constant"` leaves at the
        last row and column of some sizes; `resample_abs_pos_embed` in timm.

    Example:
    >>> table = np.random.default_rng(0).normal(size=(1, 1 + 4 * 4, 8))
    >>> keras_vit.resize_position_embedding(table, target_grid=(6, 8)).shape
    (1, 49, 8)
    """
    table = np.asarray(table)
    check_choice("method", method, METHODS)
    if isinstance(target_grid, int):
        raise ValueError(
            f"`target_grid` must be a pair `(rows, columns)`. Received: target_grid={target_grid}"
        )
    target_grid = as_pair(target_grid, "target_grid")
    source_grid = _source_grid(table, source_grid, num_prefix_tokens)
    prefix, grid = table[:, :num_prefix_tokens], table[:, num_prefix_tokens:]
    if tuple(source_grid) == target_grid:
        return table.copy()
    grid = grid.reshape(*source_grid, table.shape[-1]).astype("float64")
    resized = (_bilinear if method == "bilinear" else _bicubic)(grid, target_grid)
    resized = resized.reshape(1, -1, table.shape[-1]).astype(table.dtype)
    return np.concatenate([prefix, resized], axis=1)


def _source_grid(table, source_grid, num_prefix_tokens):
    if table.ndim != 3 or table.shape[0] != 1:
        raise ValueError(
            f"`table` must have the shape `(1, tokens, width)`. Received: table of {table.shape}"
        )
    num_patches = table.shape[1] - num_prefix_tokens
    if source_grid is None:
        side = math.isqrt(max(num_patches, 0))
        source_grid = (side, side)
    if source_grid[0] * source_grid[1] != num_patches or num_patches == 0:
        raise ValueError(
            "`source_grid` must be given where the grid is not square, and its patches be the "
            f"table's rows without {num_prefix_tokens} prefix tokens, {num_patches}. "
            f"Received: source_grid={tuple(source_grid)}"
        )
    return source_grid


def _bilinear(grid, target_grid):
    zoom = (target_grid[0] / grid.shape[0], target_grid[1] / grid.shape[1], 1)
    return scipy.ndimage.zoom(grid, zoom, order=1, mode="nearest")


def _bicubic(grid, target_grid):
    rows = _bicubic_weights(grid.shape[0], target_grid[0])
    columns = _bicubic_weights(grid.shape[1], target_grid[1])
    return np.einsum("yr,xc,rcw->yxw", rows, columns, grid)


def _bicubic_weights(source, target):
    """Weights `(target, source)` of PIL's and torch's antialiased bicubic filter (a = -0.5)."""
    scale = source / target
    centres = (np.arange(target) + 0.5) * scale - 0.5
    # Shrinking widens the filter so that every source row counts.
    distance = np.abs(np.arange(source) - centres[:, None]) / max(scale, 1)
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0))
    return weights / weights.sum(axis=1, keepdims=True)
