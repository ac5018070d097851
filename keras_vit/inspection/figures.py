"""Figures, drawn with matplotlib (`pip install 'keras-vit[plots]'`)."""

import importlib.util

import numpy as np
from keras import ops

from keras_vit.models.surgery import check_classifier

COLUMNS = 6
SHEET_COLUMNS = 8


def check_matplotlib():
    """Raises `ValueError` where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "Figures need matplotlib: pip install 'keras-vit[plots]'. Received: no matplotlib"
        )


def draw_predictions(model, images, labels, class_names, path):
    """Draws images with the model's prediction above each, green where it is right.

    Args:
        model: a classifier that returns logits.
        images: array `(batch, height, width, 3)` in [-1, 1].
        labels: array of class indices.
        class_names: name of each class.
        path: of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed, or the model is not a classifier.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    check_classifier(model)
    logits = model.predict(images, verbose=0)
    probabilities = ops.convert_to_numpy(ops.softmax(logits))
    rows = -(-len(images) // COLUMNS)
    figure = Figure(figsize=(1.6 * COLUMNS, 1.9 * rows), layout="constrained")
    axes = empty_axes(figure, rows, COLUMNS)
    for axis, image, label, scores in zip(axes, images, labels, probabilities, strict=False):
        predicted = int(scores.argmax())
        axis.imshow(np.clip((image + 1) / 2, 0, 1))
        axis.set_title(
            f"{class_names[predicted]} ({scores[predicted]:.0%})",
            color="green" if predicted == label else "red",
        )
    figure.suptitle("Predictions on test images (green: right, red: wrong)")
    figure.savefig(path, dpi=120)


def draw_contact_sheet(groups, class_names, path):
    """Draws images with the names of their classes, group by group.

    Args:
        groups: dictionary from a title to `(images, labels)`: an array
            `(count, height, width, 3)` in [-1, 1], and class indices or shares of classes.
        class_names: name of each class.
        path: of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    rows = [-(-len(images) // SHEET_COLUMNS) for images, _ in groups.values()]
    figure = Figure(
        figsize=(1.6 * SHEET_COLUMNS, 1.9 * sum(rows) + 0.4 * len(rows)), layout="constrained"
    )
    parts = np.ravel(figure.subfigures(len(groups), 1, height_ratios=rows))
    for part, count, (title, (images, labels)) in zip(parts, rows, groups.items(), strict=True):
        part.suptitle(title, fontweight="bold")
        for axis, image, label in zip(
            empty_axes(part, count, SHEET_COLUMNS), images, labels, strict=False
        ):
            axis.imshow(np.clip((image + 1) / 2, 0, 1))
            axis.set_title(_name_label(label, class_names), fontsize=7)
    figure.savefig(path, dpi=120)


def empty_axes(figure, rows, columns):
    """Empty axes, row by row."""
    axes = np.ravel(figure.subplots(rows, columns))
    for axis in axes:
        axis.axis("off")
    return axes


def _name_label(label, class_names):
    """The name of a class or, of shares, the names of all classes that have one."""
    if np.ndim(label) == 0:
        return class_names[label]
    return "\n".join(
        f"{class_names[index]} {label[index]:.0%}" for index in np.flatnonzero(np.asarray(label))
    )
