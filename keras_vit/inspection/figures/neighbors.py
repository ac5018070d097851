"""A picture of images and of those that are most similar to each."""

from keras_vit.inspection.figures.drawing import (
    check_matplotlib,
    empty_axes,
    new_figure,
    save_figure,
)

_LONGEST = 24


def draw_neighbors(rows, path):
    """Draw a row for each image: itself, and the images that were found for it.

    Args:
        rows: list of rows; a row is a list of `(pixels, caption)`, uint8 pixels of any size and a
            string.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    check_matplotlib()
    columns = max(map(len, rows))
    figure = new_figure(1.7 * columns, 1.9 * len(rows))
    axes = empty_axes(figure, len(rows), columns).reshape(len(rows), columns)
    for row, places in zip(rows, axes, strict=True):
        for (pixels, caption), axis in zip(row, places, strict=False):
            axis.imshow(pixels)
            axis.set_title("\n".join(map(_shortened, caption.splitlines())), fontsize=6)
    save_figure(figure, path)


def _shortened(line):
    # The end of a path is more informative than its beginning.
    return line if len(line) <= _LONGEST else f"...{line[3 - _LONGEST :]}"
