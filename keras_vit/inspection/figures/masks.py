"""Figure of images, and of the classes of their pixels over them."""

import numpy as np

from keras_vit.inspection.figures.drawing import (
    FIGURE_TITLE,
    check_matplotlib,
    empty_axes,
    new_figure,
    save_figure,
)

# Share of the colors of classes over the image.
OPACITY = 0.6


def draw_masks(images, masks, class_names, path, title=FIGURE_TITLE):
    """Draw each image next to the image with its mask over it, and a legend of the classes.

    Args:
        images: list of uint8 arrays `(height, width, 3)`.
        masks: list of int arrays `(height, width)`; other values than classes have no color.
        class_names: name of each class.
        path: path of the PNG file to write.
        title: title in the metadata of the file.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    count = len(class_names)
    colors = colormaps["tab10" if count <= 10 else "turbo"](np.linspace(0, 1, max(count, 10)))
    figure = new_figure(8, 3.2 * len(images))
    pairs = empty_axes(figure, len(images), 2).reshape(-1, 2)
    for axes, image, mask in zip(pairs, images, masks, strict=True):
        opacity = np.where(mask < count, OPACITY, 0)[..., None]
        layer = np.concatenate([colors[np.minimum(mask, count - 1)][..., :3], opacity], -1)
        for axis in axes:
            axis.imshow(image)
        axes[1].imshow(layer)
    there = np.unique(np.concatenate([mask.ravel() for mask in masks]))
    handles = [Patch(color=colors[n], label=class_names[n]) for n in there if n < count]
    figure.legend(handles=handles, loc="outside right upper")
    save_figure(figure, path, title)
