"""Fit position embeddings of files to models: prefix rows, grid of patches, and image size.

The position embedding of a model has one row per token: class token, registers, patches. A file has
rows for all tokens (vit_jax, transformers), or only for the patches (big_vision, DeiT III, DINOv2).
The rows before the rows of the patches are the prefix.
"""

import dataclasses
import math

import numpy as np

from keras_vit.checkpoints.architecture import grid_of, logger
from keras_vit.checkpoints.weight_map import POSITIONS
from keras_vit.core.arguments import as_pair
from keras_vit.models.options import DEFAULT_IMAGE_SIZE, is_resnet


@dataclasses.dataclass(frozen=True)
class PositionRows:
    """The grid `(rows, columns)` of a position embedding, and the number of its prefix rows."""

    grid: tuple[int, int]
    num_prefix: int


def position_rows(num_rows, counts, known=None, expected=None):
    """Split a number of position rows into prefix rows and a grid of patches.

    `counts` are the possible numbers of prefix rows, the likeliest first. `known` is the grid that
    the file records, and `expected` is the grid that the caller expects. For each count, the grid
    is the first of `known`, a square and `expected` that fits. If several counts fit, the grid
    `known` is preferred, and then `expected`; log a warning if the chosen grid is not `known`.
    Return `None` if no grid fits.

    Example:
    >>> position_rows(197, counts=(1, 0))
    PositionRows(grid=(14, 14), num_prefix=1)
    >>> position_rows(196, counts=(1, 0))
    PositionRows(grid=(14, 14), num_prefix=0)
    """
    fitting = []
    for count in dict.fromkeys(counts):
        side = math.isqrt(max(num_rows - count, 0))
        grids = [known, (side, side), expected]
        fits = [grid for grid in grids if grid and 0 < num_rows - count == grid[0] * grid[1]]
        fitting += [PositionRows(tuple(grid), count) for grid in fits[:1]]
    # A stable sort keeps the likeliest count first among equals.
    fitting.sort(key=lambda rows: (rows.grid != known, rows.grid != expected))
    if len(fitting) > 1 and fitting[0].grid != known:
        logger.warning(
            "%d positions are read as a grid of %s and %d prefix rows, but a grid of %s and %d "
            "prefix rows would fit too; to choose, give `image_size` to `from_checkpoint`",
            num_rows,
            *(fitting[0].grid, fitting[0].num_prefix, fitting[1].grid, fitting[1].num_prefix),
        )
    return fitting[0] if fitting else None


def fit_prefix(table, rows, num_prefix):
    """Fit a file's position embedding `(1, rows, width)` to the tokens of a model.

    Return `(1, num_prefix + patches, width)`. The first axis may be missing from both shapes.
    """
    if table.ndim == 2:
        return fit_prefix(table[None], rows, num_prefix)[0]
    prefix, patches = table[:, : rows.num_prefix], table[:, rows.num_prefix :]
    # Tokens for which the file has no row get zeros.
    missing = max(num_prefix - rows.num_prefix, 0)
    prefix = np.pad(prefix[:, :num_prefix], ((0, 0), (0, missing), (0, 0)))
    return np.concatenate([prefix, patches], axis=1) if num_prefix else patches


def stored_image_size(checkpoint, options, image_size):
    """Return the image size of a file.

    The caller's `image_size` is used if the grid of the file is neither square nor recorded.
    """
    table, configured = checkpoint.shape_of(POSITIONS), checkpoint.configured_size
    if is_resnet(options) or (table is None and configured is None):
        return configured or as_pair(image_size or DEFAULT_IMAGE_SIZE, "image_size")
    if table is None:
        return _tiled_size(configured, options.stride)
    if len(table) != 3:
        raise ValueError(
            "the position embedding must have the shape `(1, positions, width)`. "
            f"Received: path={str(checkpoint.path)!r}, with {table}"
        )
    known = configured and grid_of(configured, options.stride)
    expected = image_size and grid_of(as_pair(image_size, "image_size"), options.stride)
    counts = checkpoint.format.prefix_rows(options.num_prefix_tokens, checkpoint.shape_of)
    rows = position_rows(table[1], counts, known, expected)
    if rows is None:
        raise ValueError(
            "`image_size` must be that of the file if its grid of patches is not square: there are "
            f"{table[1]} positions, and {options.num_prefix_tokens} tokens before the patches. "
            f"Received: path={str(checkpoint.path)!r}"
        )
    if known not in (None, rows.grid):
        logger.warning(
            "%s: the grid of the position embedding, %s, is used instead of the recorded grid, %s",
            *(checkpoint.path, rows.grid, known),
        )
    return tuple(n * patch for n, patch in zip(rows.grid, options.stride, strict=True))


def image_spec_for(checkpoint, options, image_size):
    """Return the `ImageSpec` of a file for a model of these options and this image size.

    If patches do not tile the images of the file, the last rows and columns of pixels are cut off.
    """
    size = checkpoint.configured_size
    spec = dataclasses.replace(checkpoint.image_spec, channels=options.image_channels)
    if is_resnet(options) or size is None or _tiled_size(size, options.stride) != image_size:
        return spec
    cut_off = tuple(n % patch for n, patch in zip(size, options.stride, strict=True))
    return dataclasses.replace(spec, cut_off=cut_off)


def rows_for_model(checkpoint, shapes, grid, stride=None):
    """Return the `PositionRows` of a file for a model, and the number of the model's prefix tokens.

    Return `None` if the file or the model has no position embedding. Raise an error if their grids
    differ. `stride` is the distance of patches in pixels, or `None` for a model that was built from
    the file and therefore has the same grid.
    """
    table = checkpoint.shape_of(POSITIONS)
    if POSITIONS not in shapes or table is None or len(table) != 3:
        return None
    num_prefix = shapes[POSITIONS][1] - grid[0] * grid[1]
    counts = checkpoint.format.prefix_rows(num_prefix, checkpoint.shape_of)
    size = checkpoint.configured_size
    known = grid if stride is None else size and grid_of(size, stride)
    rows = position_rows(table[1], counts, known, expected=grid)
    if rows is None:
        return None
    if rows.grid != grid:
        raise ValueError(
            f"`path` must have the model's grid of {grid} patches; `from_checkpoint` can resize "
            f"the grid of a file. Received: path={str(checkpoint.path)!r}, with {rows.grid}"
        )
    if rows.num_prefix > num_prefix:
        text = "%s: the position of the class token is ignored: the model has no class token"
        logger.warning(text, checkpoint.path)
    return rows, num_prefix


def warn_of_assumed_grid(path, grid):
    """Warn that a file is assumed to have the grid of the model, unless the grid is square."""
    if grid[0] != grid[1]:
        text = "%s does not record its grid of patches: it is assumed to be the model's, %s"
        logger.warning(text, path, grid)


def _tiled_size(image_size, patch_size):
    """Return the largest size up to `image_size` that whole patches tile."""
    return tuple(n - n % patch for n, patch in zip(image_size, patch_size, strict=True))
