"""Position embeddings of files: the rows before the patches, and other grids.

The model has one row per token: class token, registers, patches. Files have rows for all tokens
(vit_jax, transformers), or only for the patches (big_vision, DeiT III, DINOv2).
"""

import dataclasses
import math

import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.models import resize_position_embedding


@dataclasses.dataclass(frozen=True)
class PositionRows:
    """How the rows of a file's position embedding are divided.

    Args:
        grid: `(rows, columns)` of patches.
        num_prefix: number of rows before those of the patches.
    """

    grid: tuple[int, int]
    num_prefix: int


def position_rows(num_rows, counts, known=None, asked=None):
    """Split the rows of a position table into prefix tokens and patches, by their number.

    Log a warning if two numbers of prefix rows fit and `known` does not decide.

    Args:
        num_rows: rows of the file's table.
        counts: possible numbers of prefix rows in the layout, the likeliest first.
        known: `(rows, columns)` of patches, if the file records it.
        asked: `(rows, columns)` of patches that the caller expects. For one number of prefix rows,
            a square grid is preferred to it; between two, it decides.

    Returns:
        `PositionRows`; `None` if no grid fits.

    Example:
    >>> position_rows(197, counts=(1, 0))
    PositionRows(grid=(14, 14), num_prefix=1)
    >>> position_rows(196, counts=(1, 0))
    PositionRows(grid=(14, 14), num_prefix=0)
    """
    fitting = []
    for count in counts:
        side = math.isqrt(max(num_rows - count, 0))
        grids = [known, (side, side), asked]
        fits = [grid for grid in grids if grid and 0 < num_rows - count == grid[0] * grid[1]]
        fitting += [PositionRows(tuple(grid), count) for grid in fits[:1]]
    # The sort is stable: without `asked`, the likeliest stays first.
    fitting.sort(key=lambda rows: (rows.grid != known, rows.grid != asked))
    if len(fitting) > 1 and fitting[0].grid != known:
        logger.warning(
            "%d positions are read as a grid of %s and %d prefix rows, but %s and %d fit too; "
            "`from_checkpoint` takes the `image_size`",
            num_rows,
            *(fitting[0].grid, fitting[0].num_prefix, fitting[1].grid, fitting[1].num_prefix),
        )
    return fitting[0] if fitting else None


def fit_positions(table, rows, num_prefix_tokens, grid, interpolation):
    """Return the position embedding of a file for the tokens and the grid of a model.

    Args:
        table: `(1, rows, width)`.
        rows: its `PositionRows`.
        num_prefix_tokens: class token and registers of the model.
        grid: `(rows, columns)` of the model's patches.
        interpolation: as in `resize_position_embedding`.

    Returns:
        `(1, num_prefix_tokens + patches, width)`.
    """
    prefix, patches = table[:, : rows.num_prefix], table[:, rows.num_prefix :]
    if rows.num_prefix < num_prefix_tokens:
        # A class token without a position has the position zero.
        prefix = np.zeros((1, num_prefix_tokens, table.shape[2]), table.dtype)
    prefix = prefix[:, :num_prefix_tokens]
    if tuple(grid) != rows.grid:
        patches = resize_position_embedding(patches, grid, rows.grid, 0, interpolation)
    return np.concatenate([prefix, patches], axis=1) if prefix.shape[1] else patches
