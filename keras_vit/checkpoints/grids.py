"""The grid of patches that a file's position embedding is of."""

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.formats import KERAS, POSITIONS
from keras_vit.checkpoints.formats.flax_resnet import describe_stages
from keras_vit.checkpoints.positions import position_rows
from keras_vit.core.arguments import as_pair
from keras_vit.models.vit import total_stride

# Of files of ResNets and of fixed positions, which do not record an image size.
DEFAULT_IMAGE_SIZE = 224


def stored_image_size(checkpoint, options, asked):
    """`(height, width)` of the images that a file is for.

    Args:
        checkpoint: the open `Checkpoint`.
        options: what its arrays tell of the model.
        asked: the image size that the caller gives for what the file cannot tell, or `None`.

    Returns:
        A pair.

    Raises:
        ValueError: if the file's grid is not square and nothing is given.
    """
    table = checkpoint.shape_of(POSITIONS)
    if table is None:
        return as_pair(DEFAULT_IMAGE_SIZE if asked is None else asked, "image_size")
    patch_size = total_stride(options["patch_size"], options.get("resnet_stages"))
    if len(table) != 3:
        raise ValueError(
            "the position embedding must have the shape `(1, positions, width)`. "
            f"Received: path={str(checkpoint.path)!r}, with {table}"
        )
    configured = _configured_grid(checkpoint, patch_size)
    if asked is not None:
        asked = _grid(as_pair(asked, "image_size"), patch_size)
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
            "%s: its position embedding is for a grid of %s patches, which is used; its settings "
            "are for %s",
            *(checkpoint.path, rows.grid, configured),
        )
    return tuple(n * patch for n, patch in zip(rows.grid, patch_size, strict=True))


def _configured_grid(checkpoint, patch_size):
    size = _configured_size(checkpoint)
    return _grid(size, patch_size) if size else None


def _configured_size(checkpoint):
    """`(height, width)` of the images that the settings of a file are for, or `None`."""
    if checkpoint.format is KERAS:
        return tuple(checkpoint.archive.model.inputs[0].shape[1:3])
    config = checkpoint.archive.config
    timm = (config.get("pretrained_cfg") or {}).get("input_size", ())[1:]
    size = (config.get("model_args") or {}).get("img_size") or config.get("image_size") or timm
    return as_pair(size, "image_size") if size else None


def fit_arguments(checkpoint, shapes, grid, stored_size):
    """The arguments of `fit_positions` for a model, or `None` if its table does not fit.

    Args:
        checkpoint: the open `Checkpoint`.
        shapes: of the model's variables, by path.
        grid: `(rows, columns)` of the model's patches.
        stored_size: image size of the file, from which it is resized; `None` if it has to fit.

    Returns:
        The arguments of `fit_positions` after `table`.

    Raises:
        ValueError: if it has to fit, and the file records another grid, or records none and has as
            many positions as a square grid that is not the model's.
    """
    table = checkpoint.shape_of(POSITIONS)
    if POSITIONS not in shapes or table is None or len(table) != 3:
        return None
    num_prefix = shapes[POSITIONS][1] - grid[0] * grid[1]
    stages = describe_stages(shapes.get) if "root_conv/kernel" in shapes else None
    patch_size = total_stride(shapes["patch_embedding/projection/kernel"][:2], stages)
    counts = checkpoint.format.prefix_rows(num_prefix, checkpoint.shape_of)
    if stored_size:
        rows = position_rows(table[1], counts, _grid(stored_size, patch_size))
    else:
        rows = _rows_for_model(checkpoint, table[1], counts, grid, patch_size)
    if rows is None:
        return None
    if rows.num_prefix > num_prefix:
        logger.warning(
            "%s: the position of a class token that is not there is left out", checkpoint.path
        )
    return rows, num_prefix, grid, checkpoint.format.interpolation


def _rows_for_model(checkpoint, num_rows, counts, grid, patch_size):
    """The rows of a table that has to be for the model's grid, or `None` if no grid fits."""
    rows = position_rows(num_rows, counts, _configured_grid(checkpoint, patch_size), asked=grid)
    if rows is not None and rows.grid != grid:
        raise ValueError(
            f"`path` must be for the model's grid of {grid} patches: `from_checkpoint` with "
            f"`image_size` resizes others. Received: path={str(checkpoint.path)!r}, for {rows.grid}"
        )
    return rows


def records_grid(checkpoint):
    """Whether a file records the grid of patches that its position embedding is for."""
    return _configured_size(checkpoint) is not None


def warn_of_assumed_grid(path, grid):
    """Log a warning for a file without a record of its grid and a model whose grid is not square.

    Args:
        path: of the file.
        grid: `(rows, columns)` of the model's patches.
    """
    if grid[0] != grid[1]:
        logger.warning(
            "%s does not record its grid of patches: it is assumed to be the model's, %s",
            *(path, grid),
        )


def _grid(image_size, patch_size):
    return tuple(pixels // patch for pixels, patch in zip(image_size, patch_size, strict=True))


def num_prefix_tokens(options):
    """The class token and the registers of a model with these options."""
    return bool(options.get("class_token")) + options.get("num_registers", 0)
