"""Figure of a confusion matrix."""

import numpy as np

from keras_vit.inspection.figures.drawing import (
    check_matplotlib,
    new_figure,
    save_figure,
    shortened,
)

# Up to so many classes, every class is named, and every cell shows its number of images.
NAMED = 40
NUMBERED = 20
LONGEST_NAME = 24


def draw_confusion(matrix, class_names, path):
    """Draw a confusion matrix: rows are classes, columns predictions, colors shares of a row.

    With up to 20 classes the cells show their numbers of images. With more than 40 classes only
    some of the names are shown.

    Args:
        matrix: integers `(classes, classes)` from `keras_vit.evaluation.metrics.confusion_matrix`.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed, or the numbers of names and classes differ.
    """
    check_matplotlib()
    from matplotlib.colors import PowerNorm

    matrix = np.asarray(matrix)
    if matrix.shape != (len(class_names), len(class_names)):
        raise ValueError(
            "`matrix` must have a row and a column for each of the class names. "
            f"Received: shape {matrix.shape} and {len(class_names)} names"
        )
    # The row of a class without images is empty.
    shares = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = 3.5 + 0.22 * min(max(len(class_names), 10), 2 * NAMED)
    axis = new_figure(side + 1, side).subplots()
    # Square roots make the few percent of a common mistake visible.
    drawn = axis.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=100))
    step = -(-len(class_names) // NAMED)
    ticks = np.arange(0, len(class_names), step)
    names = [shortened(class_names[tick], LONGEST_NAME) for tick in ticks]
    axis.set_xticks(ticks, names, rotation=90, fontsize=8)
    axis.set_yticks(ticks, names, fontsize=8)
    accuracy = np.trace(matrix) / max(matrix.sum(), 1)
    axis.set(xlabel="predicted class", ylabel="class")
    axis.set_title(f"Accuracy {accuracy:.1%} of {matrix.sum()} images")
    if len(class_names) <= NUMBERED:
        _number(axis, matrix, shares)
    bar = axis.figure.colorbar(drawn, ticks=[0, 1, 5, 10, 20, 40, 60, 80, 100], shrink=0.8)
    bar.set_label("share of the class's images (%)")
    save_figure(axis.figure, path)


def _number(axis, matrix, shares):
    """Write the number of images in each cell that has any."""
    for row, column in np.argwhere(matrix):
        style = {"fontsize": 7, "color": "white" if shares[row, column] > 30 else "black"}
        axis.text(column, row, f"{matrix[row, column]}", ha="center", va="center", **style)
