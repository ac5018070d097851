"""Position embeddings between the layouts: rows of the class token, and other grids.

The model has one row for each of its tokens: class token, registers, patches. Files have rows for
all tokens (vit_jax, transformers), or for the patches alone (big_vision, DeiT III, DINOv2).
"""

import dataclasses
import math

import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.models import resize_position_embedding


@dataclasses.dataclass(frozen=True)
class PositionRows:
    """What the rows of a file's position embedding are.

    Args:
        grid: `(rows, columns)` of patches.
        num_prefix: rows in front of the patches.
    """

    grid: tuple[int, int]
    num_prefix: int


def position_rows(num_rows, counts, known=None, asked=None):
    """Split the rows of a position table into prefix tokens and patches, by their number.

    Log a warning if two numbers of prefix rows fit and `known` does not decide.

    Args:
        num_rows: rows of the file's table.
        counts: numbers of prefix rows that the file's format may have, the likeliest first.
        known: `(rows, columns)` of patches that the file is for, if it is recorded.
        asked: `(rows, columns)` of patches that the file may be for. For one number of prefix rows
            a square grid is preferred; between two, the grid that is asked for.

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
    # The sort is stable: if nothing is asked for, the likeliest stays first.
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
    """The file's table for the model's tokens and grid.

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
        # A class token without a position is one with the position zero.
        prefix = np.zeros((1, num_prefix_tokens, table.shape[2]), table.dtype)
    prefix = prefix[:, :num_prefix_tokens]
    if tuple(grid) != rows.grid:
        patches = resize_position_embedding(patches, grid, rows.grid, 0, interpolation)
    return np.concatenate([prefix, patches], axis=1) if prefix.shape[1] else patches


def fold_prefix(class_token, table):
    """Moves the class token's position into the token itself, as big_vision has it.

    Args:
        class_token: `(1, 1, width)`.
        table: `(1, 1 + patches, width)`.

    Returns:
        The class token, and the table of the patches alone.
    """
    return class_token + table[:, :1], table[:, 1:]
