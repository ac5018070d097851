"""Position embeddings of files: their rows, their grid of patches, and the image size.

The model has one row per token: class token, registers, patches. Files have rows for all tokens
(vit_jax, transformers), or only for the patches (big_vision, DeiT III, DINOv2).
"""

import dataclasses
import math

import numpy as np

from keras_vit.checkpoints.architecture import grid_of, logger
from keras_vit.checkpoints.formats.flax_resnet import describe_stages
from keras_vit.checkpoints.weight_map import POSITIONS
from keras_vit.core.arguments import as_pair
from keras_vit.models.positions import resize_position_embedding
from keras_vit.models.stem_and_head import DEFAULT_IMAGE_SIZE
from keras_vit.models.variants import is_resnet, total_stride


@dataclasses.dataclass(frozen=True)
class PositionRows:
    """The `(rows, columns)` of patches in a position table, and the rows before them."""

    grid: tuple[int, int]
    num_prefix: int


def position_rows(num_rows, counts, known=None, asked=None):
    """Split the rows of a position table into prefix tokens and patches, by their number.

    `counts` are possible numbers of prefix rows, the likeliest first; `known` is the grid that the
    file records. A square grid is preferred to `asked`, the grid that the caller expects, for one
    number of prefix rows; between two, `asked` decides. Log a warning if two numbers fit and
    `known` does not decide. Return `None` if no grid fits.

    Example:
    >>> position_rows(197, counts=(1, 0))
    PositionRows(grid=(14, 14), num_prefix=1)
    >>> position_rows(196, counts=(1, 0))
    PositionRows(grid=(14, 14), num_prefix=0)
    """
    fitting = []
    for count in dict.fromkeys(counts):
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


def fit_positions(table, rows, num_prefix, grid, interpolation):
    """Fit a file's position embedding `(1, rows, width)` to the tokens and the grid of a model.

    Return `(1, num_prefix + patches, width)`; both without the first axis, if the file has none.
    """
    if table.ndim == 2:
        return fit_positions(table[None], rows, num_prefix, grid, interpolation)[0]
    prefix, patches = table[:, : rows.num_prefix], table[:, rows.num_prefix :]
    # Tokens without a position have the position zero.
    missing = max(num_prefix - rows.num_prefix, 0)
    prefix = np.pad(prefix[:, :num_prefix], ((0, 0), (0, missing), (0, 0)))
    if tuple(grid) != rows.grid:
        patches = resize_position_embedding(patches, grid, rows.grid, 0, interpolation)
    return np.concatenate([prefix, patches], axis=1) if prefix.shape[1] else patches


def stored_image_size(checkpoint, options, asked):
    """Return the image size of a file.

    `asked` is the caller's, for a file whose grid is neither square nor recorded.
    """
    table = checkpoint.shape_of(POSITIONS)
    if table is None and (is_resnet(options) or checkpoint.configured_size is None):
        asked = DEFAULT_IMAGE_SIZE if asked is None else asked
        return checkpoint.configured_size or as_pair(asked, "image_size")
    patch_size = total_stride(options["patch_size"], options.get("resnet_stages"))
    if table is None:
        return _tiled(checkpoint.configured_size, patch_size)
    if len(table) != 3:
        raise ValueError(
            "the position embedding must have the shape `(1, positions, width)`. "
            f"Received: path={str(checkpoint.path)!r}, with {table}"
        )
    configured = _configured_grid(checkpoint, patch_size)
    if asked is not None:
        asked = grid_of(as_pair(asked, "image_size"), patch_size)
    num_prefix = num_prefix_tokens(options)
    counts = checkpoint.format.prefix_rows(num_prefix, checkpoint.shape_of)
    rows = position_rows(table[1], counts, configured, asked)
    if rows is None:
        raise ValueError(
            "`image_size` must be that of the file where its grid of patches is not square: "
            f"{table[1]} positions with {num_prefix} tokens before the patches. "
            f"Received: path={str(checkpoint.path)!r}"
        )
    if configured not in (None, rows.grid):
        logger.warning(
            "%s: the grid of its position embedding, %s, is used; its settings have another, %s",
            *(checkpoint.path, rows.grid, configured),
        )
    return tuple(n * patch for n, patch in zip(rows.grid, patch_size, strict=True))


def resizing_for(checkpoint, options, image_size):
    """Return the `Resizing` of a file for a model of these options and this image size.

    The patches of a file may not reach the last rows and columns of its images.
    """
    size = checkpoint.configured_size
    if is_resnet(options) or size is None:
        return checkpoint.resizing
    patch_size = total_stride(options["patch_size"], options.get("resnet_stages"))
    if _tiled(size, patch_size) != image_size:
        return checkpoint.resizing
    cut_off = tuple(n % patch for n, patch in zip(size, patch_size, strict=True))
    return dataclasses.replace(checkpoint.resizing, cut_off=cut_off)


def _configured_grid(checkpoint, patch_size):
    size = checkpoint.configured_size
    return grid_of(size, patch_size) if size else None


def fit_arguments(checkpoint, shapes, grid, stored_size):
    """Return the arguments of `fit_positions` after `table`, or `None` if the table does not fit.

    `stored_size` is the image size of the file, to resize its position embedding. If it is `None`,
    the file must have the model's grid: raise an error if it records another one, or records none
    and has as many positions as another square grid.
    """
    table = checkpoint.shape_of(POSITIONS)
    if POSITIONS not in shapes or table is None or len(table) != 3:
        return None
    num_prefix = shapes[POSITIONS][1] - grid[0] * grid[1]
    stages = describe_stages(shapes.get) if "root_conv/kernel" in shapes else None
    patch_size = total_stride(shapes["patch_embedding/projection/kernel"][:2], stages)
    counts = checkpoint.format.prefix_rows(num_prefix, checkpoint.shape_of)
    if stored_size:
        rows = position_rows(table[1], counts, grid_of(stored_size, patch_size))
    else:
        rows = _rows_for_model(checkpoint, table[1], counts, grid, patch_size)
    if rows is None:
        return None
    if rows.num_prefix > num_prefix:
        text = "%s: the position of a class token is left out, as there is no such token"
        logger.warning(text, checkpoint.path)
    return rows, num_prefix, grid, checkpoint.format.interpolation


def _rows_for_model(checkpoint, num_rows, counts, grid, patch_size):
    """Return the rows of a table for the model's grid, or `None` if no grid fits."""
    rows = position_rows(num_rows, counts, _configured_grid(checkpoint, patch_size), asked=grid)
    if rows is not None and rows.grid != grid:
        raise ValueError(
            f"`path` must be for the model's grid of {grid} patches: `from_checkpoint` with "
            f"`image_size` resizes others. Received: path={str(checkpoint.path)!r}, for {rows.grid}"
        )
    return rows


def warn_of_assumed_grid(path, grid):
    """Log a warning if a file does not record its grid and that of the model is not square."""
    if grid[0] != grid[1]:
        text = "%s does not record its grid of patches: it is assumed to be the model's, %s"
        logger.warning(text, path, grid)


def _tiled(image_size, patch_size):
    """Return the part of an image that whole patches tile."""
    return tuple(n - n % patch for n, patch in zip(image_size, patch_size, strict=True))


def num_prefix_tokens(options):
    """Return the number of tokens before the patches: class, distillation token, registers."""
    flags = ("class_token", "distillation_token")
    return sum(map(bool, map(options.get, flags))) + options.get("num_registers", 0)
