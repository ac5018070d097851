"""Figures, drawn with matplotlib (`pip install 'keras-vit-zoo[plots]'`)."""

import importlib.util
import pathlib
import warnings

import numpy as np
from keras import ops

from keras_vit.core.files import replacing
from keras_vit.models.parts import check_classifier

COLUMNS = 6
SHEET_COLUMNS = 8
# Stored as the title of figures and of contact sheets, to recognize them.
FIGURE_TITLE = "keras-vit"
SHEET_TITLE = "keras-vit data"


def check_matplotlib():
    """Raise `ValueError` if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "Figures need matplotlib: pip install 'keras-vit-zoo[plots]'. Received: no matplotlib"
        )


def new_figure(width, height):
    """Return an empty figure of a size in inches; raise `ValueError` without matplotlib."""
    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure, path, title=FIGURE_TITLE):
    """Write a figure atomically. A `$` is drawn as it is, but in the numbers of axes.

    Args:
        figure: a matplotlib figure.
        path: path of the file, or a file object.
        title: title to store in the file, for `is_drawn_here`.
    """
    from matplotlib.text import Text

    numbers = {tick for axis in figure.axes for tick in _logarithmic_labels(axis)}
    for text in set(figure.findobj(Text)) - numbers:
        text.set_parse_math(False)
    if hasattr(path, "write"):
        _write(figure, path)
        return
    path = pathlib.Path(path).resolve()
    # Matplotlib adds this suffix too.
    path = path if path.suffix else path.with_suffix(".png")
    metadata = {"metadata": {"Title": title}} if path.suffix.lower() == ".png" else {}
    with replacing(path) as partial:
        _write(figure, partial, **metadata)


def _write(figure, path, **options):
    with warnings.catch_warnings():
        # Few fonts have emoji, which may be in the name of a class.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(path, dpi=120, **options)


def _logarithmic_labels(axis):
    """Return the labels of logarithmic axes, which are formulas."""
    for part, scale in ((axis.xaxis, axis.get_xscale()), (axis.yaxis, axis.get_yscale())):
        if scale == "log":
            yield from part.findobj(lambda found: hasattr(found, "set_parse_math"))


def shortened(name, length):
    """Return a name, cut to a length if it is longer.

    Example:
    >>> from keras_vit.inspection.figures.drawing import shortened
    >>> shortened("Felis_silvestris", 8)
    'Felis_s…'
    """
    return name if len(name) <= length else f"{name[: length - 1]}…"


def is_drawn_here(path, title=FIGURE_TITLE):
    """Whether a file is a picture that `save_figure` wrote with this title."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.info.get("Title") == title
    # Pillow's error depends on what is wrong with the file.
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False


def draw_predictions(model, images, labels, class_names, path):
    """Draw images with the model's predictions, green if right and red if wrong.

    Args:
        model: a classifier that returns logits.
        images: array `(batch, height, width, 3)` in [-1, 1].
        labels: array of class indices.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed; the model is not a classifier; the numbers of
            labels and images, or of names and classes, differ; or `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].
    """
    check_matplotlib()
    num_classes = check_classifier(model)
    _check_labels(images, labels, class_names)
    if len(class_names) != num_classes:
        raise ValueError(
            f"`class_names` must have a name for each of the model's {num_classes} classes. "
            f"Received: {len(class_names)} names"
        )
    probabilities = ops.convert_to_numpy(ops.softmax(model.predict(images, verbose=0)))
    rows = -(-len(images) // COLUMNS)
    figure = new_figure(1.6 * COLUMNS, 1.9 * rows)
    axes = empty_axes(figure, rows, COLUMNS)
    # There may be more axes than images.
    for axis, image, label, scores in zip(axes, images, labels, probabilities, strict=False):
        predicted = int(scores.argmax())
        axis.imshow(np.clip((image + 1) / 2, 0, 1))
        title = f"{class_names[predicted]} ({scores[predicted]:.0%})"
        axis.set_title(title, color="green" if predicted == label else "red")
    figure.suptitle("Predictions on test images (green: right, red: wrong)")
    save_figure(figure, path)


def draw_contact_sheet(groups, class_names, path):
    """Draw groups of images with the names of their classes.

    Args:
        groups: dictionary from titles to `(images, labels)`: an array
            `(count, height, width, 3)` in [-1, 1], and class indices or soft labels.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed, or a group has another number of labels than
            of images, or labels of other classes.
    """
    for images, labels in groups.values():
        _check_labels(images, labels, class_names)
    rows = [-(-len(images) // SHEET_COLUMNS) for images, _ in groups.values()]
    figure = new_figure(1.6 * SHEET_COLUMNS, 1.9 * sum(rows) + 0.4 * len(rows))
    parts = np.ravel(figure.subfigures(len(groups), 1, height_ratios=rows))
    for part, count, (title, (images, labels)) in zip(parts, rows, groups.items(), strict=True):
        part.suptitle(title, fontweight="bold")
        axes = empty_axes(part, count, SHEET_COLUMNS)
        for axis, image, label in zip(axes, images, labels, strict=False):
            axis.imshow(np.clip((image + 1) / 2, 0, 1))
            axis.set_title(_name_label(label, class_names), fontsize=7)
    save_figure(figure, path, SHEET_TITLE)


def empty_axes(figure, rows, columns):
    """Return axes without frames and ticks, row by row."""
    axes = np.ravel(figure.subplots(rows, columns))
    for axis in axes:
        axis.axis("off")
    return axes


def _check_labels(images, labels, class_names):
    if len(images) != len(labels) or not len(images):
        raise ValueError(
            "`images` and `labels` must have the same length, at least 1. "
            f"Received: {len(images)} images and {len(labels)} labels"
        )
    labels, count = np.asarray(labels), len(class_names)
    are_of_names = labels.shape[1] == count if labels.ndim == 2 else np.isin(labels, range(count))
    if not np.all(are_of_names):
        raise ValueError(
            f"`labels` must be of the {count} classes of `class_names`. Received: labels of the "
            f"shape {labels.shape} from {labels.min()} to {labels.max()}"
        )


def _name_label(label, class_names):
    """Return the name of a class or, for soft labels, of all classes with a share."""
    if np.ndim(label) == 0:
        return class_names[label]
    return "\n".join(
        f"{class_names[index]} {label[index]:.0%}" for index in np.flatnonzero(np.asarray(label))
    )
