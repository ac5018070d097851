"""Figure of the inputs and predictions of a masked patch predictor."""

import keras
import numpy as np

from keras_vit.core.choices import COLOR_LEVELS
from keras_vit.core.pixels import check_images
from keras_vit.inspection.figures.drawing import check_matplotlib, new_figure, save_figure
from keras_vit.models.masked_patches import CELLS, NUM_COLOURS
from keras_vit.models.parts import token_grid

COLUMNS = 8
# A color in [-1, 1] that is rare in gray images and photographs.
BLUE = (-0.3, -0.1, 0.2)


def draw_masked_patches(predictor, batch, path):
    """Draw images, their corrupted inputs, the predictions and the targets.

    Masked patches of the inputs are blue. Patches that were not corrupted look the same in all
    rows.

    Args:
        predictor: a model from `masked_patch_predictor`.
        batch: `(inputs, targets, sample_weights)`, a batch from `keras_vit.data.mask_patches` as
            arrays; the first 8 images are drawn.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed; the patches or targets of the model and the
            batch differ; or the images are not scaled to [-1, 1].
    """
    check_matplotlib()
    arrays = keras.tree.map_structure(np.asarray, batch)
    inputs, targets, weights = keras.tree.map_structure(lambda array: array[:COLUMNS], arrays)
    check_images(inputs["images"])
    grid = token_grid(predictor)
    predictions = _predict(predictor, inputs, targets)
    images = _cut(inputs["images"], grid)
    is_corrupted = weights.reshape(*weights.shape[:2], -1)[..., 0] > 0
    rows = {
        "Images": images,
        "What the model sees": _corrupt(images, inputs["corruption"]),
        "What it predicts": _fill(images, is_corrupted, predictions),
        "What was to be predicted": _fill(images, is_corrupted, targets),
    }
    height = 1.6 * images.shape[2] * grid[0] / (images.shape[3] * grid[1]) + 0.3
    # At least wide enough for the titles.
    figure = new_figure(1.6 * max(len(images), 4), height * len(rows))
    for part, (title, patches) in zip(figure.subfigures(len(rows), 1), rows.items(), strict=True):
        part.suptitle(title)
        axes = np.ravel(part.subplots(1, len(images)))
        for axis, image in zip(axes, _join(patches, grid), strict=True):
            axis.axis("off")
            axis.imshow(np.clip((image + 1) / 2, 0, 1))
    save_figure(figure, path)


def _predict(predictor, inputs, targets):
    """Return the predictions in the form of the targets: color classes, or pixels."""
    is_color = np.issubdtype(targets.dtype, np.integer)
    expected = (*targets.shape[1:], NUM_COLOURS) if is_color else targets.shape[1:]
    if predictor.output_shape[1:] != expected:
        raise ValueError(
            "`predictor` must predict the patches and the target of the batch, "
            f"{expected} for each image. Received: a model that predicts "
            f"{predictor.output_shape[1:]}"
        )
    predictions = predictor.predict(inputs, verbose=0)
    return predictions.argmax(axis=-1) if is_color else predictions


def _corrupt(images, corruption):
    taken = np.take_along_axis(images, np.maximum(corruption, 0)[..., None, None, None], axis=1)
    return np.where(corruption[..., None, None, None] < 0, BLUE, taken)


def _fill(images, is_corrupted, targets):
    """Return the images with the corrupted patches replaced by targets."""
    if np.issubdtype(targets.dtype, np.integer):
        height, width = images.shape[2:4]
        side = 1 if targets.ndim == 2 else CELLS
        cells = decode_colors(targets).reshape(*targets.shape[:2], side, side, 3)
        rows, columns = np.arange(height) * side // height, np.arange(width) * side // width
        patches = cells[:, :, rows[:, None], columns]
    else:
        patches = targets.reshape(images.shape)
    return np.where(is_corrupted[..., None, None, None], patches, images)


def _cut(images, grid):
    """Cut images into patches, `(batch, patches, height, width, channels)`."""
    batch_size, height, width, channels = images.shape
    size = height // grid[0], width // grid[1]
    tiles = images.reshape(batch_size, grid[0], size[0], grid[1], size[1], channels)
    return tiles.swapaxes(2, 3).reshape(batch_size, -1, *size, channels)


def _join(patches, grid):
    batch_size, _, height, width, channels = patches.shape
    tiles = patches.reshape(batch_size, *grid, height, width, channels).swapaxes(2, 3)
    return tiles.reshape(batch_size, grid[0] * height, grid[1] * width, channels)


def decode_colors(classes):
    """Return the colors in the middle of classes.

    Args:
        classes: int array `(...)` with values from 0 to 511, as of
            `keras_vit.data.masked_patches.encode_colors`.

    Returns:
        A float32 array `(..., 3)` in [-1, 1].

    Example:
    >>> from keras_vit.inspection.figures.masked_patches import decode_colors
    >>> decode_colors([0, 449])
    array([[-0.875, -0.875, -0.875],
           [ 0.875, -0.875, -0.625]], dtype=float32)
    """
    levels = np.stack(np.unravel_index(classes, (COLOR_LEVELS,) * 3), axis=-1)
    return ((levels + 0.5) * (2 / COLOR_LEVELS) - 1).astype("float32")
