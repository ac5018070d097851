"""Draw images with a model's predictions, and provide helpers for all figures.

Figures need matplotlib: `pip install 'keras-vit-zoo[plots]'`.
"""

import importlib.util
import pathlib
import warnings

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import COLOR_LEVELS
from keras_vit.core.files import replacing
from keras_vit.models.image_model import check_images
from keras_vit.models.masked_patches import CELLS
from keras_vit.models.structure import token_grid

COLUMNS = 6
SHEET_COLUMNS = 8
# Greatest number of images in a figure of masked patches.
MOST_MASKED = 8
# A color in [-1, 1] that is rare in gray images and photographs.
BLUE = (-0.3, -0.1, 0.2)
# Opacity of the colors that show classes over an image.
OPACITY = 0.6


def check_matplotlib():
    """Raise `ValueError` if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "Figures need matplotlib: pip install 'keras-vit-zoo[plots]'. Received: no matplotlib"
        )


def new_figure(width, height):
    """Return an empty figure of a size in inches; raise `ValueError` if matplotlib is missing."""
    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def empty_axes(figure, rows, columns):
    """Return axes without frames and ticks, row by row."""
    axes = np.ravel(figure.subplots(rows, columns))
    for axis in axes:
        axis.axis("off")
    return axes


def draw_tiles(figure, columns, pictures, titles, **style):
    """Draw pictures row by row, each with its title, and return their axes."""
    axes = empty_axes(figure, -(-len(pictures) // columns), columns)[: len(pictures)]
    for axis, picture, title in zip(axes, pictures, titles, strict=True):
        axis.imshow(picture)
        axis.set_title(title, **style)
    return axes


def save_figure(figure, path):
    """Write a figure atomically, by default as PNG. A `$` in a text does not begin a formula."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        # The labels of logarithmic axes, which are formulas, are made later, by `savefig`.
        if "$" in text.get_text():
            text.set_parse_math(False)
    path = pathlib.Path(path).resolve()
    # matplotlib would add the same suffix.
    path = path if path.suffix else path.with_suffix(".png")
    with replacing(path) as partial, warnings.catch_warnings():
        # Class names may contain emoji, which few fonts contain.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(partial, dpi=120)


def shortened(name, length):
    """Cut a name to a length.

    Example:
    >>> from keras_vit.inspection.figures.drawing import shortened
    >>> shortened("Felis_silvestris", 8)
    'Felis_s…'
    """
    return name if len(name) <= length else f"{name[: length - 1]}…"


def as_picture(image):
    """Return an image in [-1, 1] as RGB in [0, 1]: its first three channels, or their mean."""
    image = np.clip((np.asarray(image, "float32") + 1) / 2, 0, 1)
    if image.shape[-1] >= 3:
        return image[..., :3]
    return np.repeat(image.mean(axis=-1, keepdims=True), 3, axis=-1)


def draw_predictions(model, images, labels, class_names, path):
    """Draw images with the model's predictions, green if right and red if wrong.

    Args:
        model: a classifier that returns logits.
        images: array `(batch, height, width, 3)` in [-1, 1].
        labels: array of class indices.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.
    """
    probabilities = ops.convert_to_numpy(ops.softmax(model.predict(images, verbose=0)))
    predicted = probabilities.argmax(axis=-1)
    titles = [
        f"{class_names[number]} ({scores[number]:.0%})"
        for number, scores in zip(predicted, probabilities, strict=True)
    ]
    figure = new_figure(1.6 * COLUMNS, 1.9 * -(-len(images) // COLUMNS))
    axes = draw_tiles(figure, COLUMNS, as_picture(images), titles)
    for axis, is_right in zip(axes, predicted == np.asarray(labels), strict=True):
        axis.title.set_color("green" if is_right else "red")
    figure.suptitle("Predictions on test images (green: right, red: wrong)")
    save_figure(figure, path)


def draw_mistakes(images, labels, predicted, probabilities, class_names, path):
    """Draw images with the class that a model predicts and the true class.

    Args:
        images: array `(batch, height, width, 3)` in [-1, 1] of at least one image.
        labels: array of class indices.
        predicted: array of the predicted class indices.
        probabilities: array of the probabilities of the predicted classes.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.
    """
    titles = [
        f"{class_names[guess]} ({probability:.0%})\nis {class_names[label]}"
        for guess, probability, label in zip(predicted, probabilities, labels, strict=True)
    ]
    figure = new_figure(1.8 * COLUMNS, 2.2 * -(-len(images) // COLUMNS) + 0.4)
    draw_tiles(figure, COLUMNS, as_picture(images), titles, fontsize=8)
    figure.suptitle("Predicted class and probability, and the class that the image has")
    save_figure(figure, path)


def draw_contact_sheet(groups, class_names, path):
    """Draw groups of images with the names of their classes.

    Args:
        groups: dictionary from titles to `(images, labels)`: an array
            `(count, height, width, 3)` in [-1, 1], and class indices or soft labels.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.
    """
    rows = [-(-len(images) // SHEET_COLUMNS) for images, _ in groups.values()]
    figure = new_figure(1.6 * SHEET_COLUMNS, 1.9 * sum(rows) + 0.4 * len(rows))
    parts = np.ravel(figure.subfigures(len(groups), 1, height_ratios=rows))
    for part, (title, (images, labels)) in zip(parts, groups.items(), strict=True):
        part.suptitle(title, fontweight="bold")
        names = [_name_label(label, class_names) for label in labels]
        draw_tiles(part, SHEET_COLUMNS, as_picture(images), names, fontsize=7)
    save_figure(figure, path)


def _name_label(label, class_names):
    """Return the name of a class or, for soft labels, the shares of classes."""
    if np.ndim(label) == 0:
        return class_names[label]
    shares = zip(class_names, label, strict=True)
    return "\n".join(f"{name} {share:.0%}" for name, share in shares if share)


def draw_neighbors(rows, path):
    """Draw a row for each image: the image, and the images that are similar to it.

    Args:
        rows: list of rows; a row is a list of `(pixels, caption)`, uint8 pixels of any size and a
            string.
        path: path of the PNG file to write.
    """
    columns, longest = max(map(len, rows)), 24
    figure = new_figure(1.7 * columns, 1.9 * len(rows))
    axes = empty_axes(figure, len(rows), columns).reshape(len(rows), columns)
    for row, axis_row in zip(rows, axes, strict=True):
        for (pixels, caption), axis in zip(row, axis_row, strict=False):
            axis.imshow(pixels)
            # The end of a path is more informative than its beginning.
            lines = [
                line if len(line) <= longest else f"...{line[3 - longest :]}"
                for line in caption.splitlines()
            ]
            axis.set_title("\n".join(lines), fontsize=6)
    save_figure(figure, path)


def draw_masks(images, masks, class_names, path):
    """Draw each image without and with its mask, and a legend of the classes.

    Args:
        images: list of uint8 arrays `(height, width, 3)`.
        masks: list of int arrays `(height, width)`; values that are not classes have no color.
        class_names: name of each class.
        path: path of the PNG file to write.
    """
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    figure = new_figure(8, 3.2 * len(images))
    count = len(class_names)
    colors = colormaps["tab10" if count <= 10 else "turbo"](np.linspace(0, 1, max(count, 10)))
    pairs = empty_axes(figure, len(images), 2).reshape(-1, 2)
    for axes, image, mask in zip(pairs, images, masks, strict=True):
        opacity = np.where(mask < count, OPACITY, 0)[..., None]
        layer = np.concatenate([colors[np.minimum(mask, count - 1)][..., :3], opacity], -1)
        for axis in axes:
            axis.imshow(image)
        axes[1].imshow(layer)
    present = np.unique(np.concatenate([mask.ravel() for mask in masks]))
    handles = [Patch(color=colors[n], label=class_names[n]) for n in present if n < count]
    figure.legend(handles=handles, loc="outside right upper")
    save_figure(figure, path)


def draw_masked_patches(predictor, batch, path):
    """Draw images, their corrupted inputs, the predictions and the targets.

    Masked patches of the inputs are blue. Uncorrupted patches look the same in all rows.

    Args:
        predictor: a model from `masked_patch_predictor`.
        batch: `(inputs, targets, sample_weights)`, the arrays of a batch from
            `keras_vit.data.mask_patches` with the target of the predictor. The first 8 images are
            drawn.
        path: path of the PNG file to write.

    Raises:
        ValueError: if the images are not scaled to [-1, 1].
    """
    arrays = keras.tree.map_structure(np.asarray, batch)
    inputs, targets, weights = keras.tree.map_structure(lambda array: array[:MOST_MASKED], arrays)
    check_images(inputs["images"])
    predictions = predictor.predict(inputs, verbose=0)
    if np.issubdtype(targets.dtype, np.integer):
        predictions = predictions.argmax(axis=-1)
    grid = token_grid(predictor)
    images = _cut(inputs["images"], grid)
    corruption = inputs["corruption"][..., None, None, None]
    is_corrupted = weights.reshape(*weights.shape[:2], -1)[..., 0] > 0
    replacements = np.take_along_axis(images, np.maximum(corruption, 0), axis=1)
    rows = {
        "Images": images,
        "What the model sees": np.where(corruption < 0, BLUE, replacements),
        "What it predicts": _fill(images, is_corrupted, predictions),
        "What was to be predicted": _fill(images, is_corrupted, targets),
    }
    height = 1.6 * images.shape[2] * grid[0] / (images.shape[3] * grid[1]) + 0.3
    # Wide enough for the titles.
    figure = new_figure(1.6 * max(len(images), 4), height * len(rows))
    for part, (title, patches) in zip(figure.subfigures(len(rows), 1), rows.items(), strict=True):
        part.suptitle(title)
        axes = empty_axes(part, 1, len(images))
        for axis, image in zip(axes, _join(patches, grid), strict=True):
            axis.imshow(as_picture(image))
    save_figure(figure, path)


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
    """Return the color in the middle of each color class.

    Args:
        classes: int array `(...)` with values from 0 to 511, from
            `keras_vit.data.corruption.encode_colors`.

    Returns:
        A float32 array `(..., 3)` in [-1, 1].

    Example:
    >>> from keras_vit.inspection.figures.drawing import decode_colors
    >>> decode_colors([0, 449])
    array([[-0.875, -0.875, -0.875],
           [ 0.875, -0.875, -0.625]], dtype=float32)
    """
    levels = np.stack(np.unravel_index(classes, (COLOR_LEVELS,) * 3), axis=-1)
    return ((levels + 0.5) * (2 / COLOR_LEVELS) - 1).astype("float32")
