"""Figures of filters and position embeddings, after figure 7 of the ViT paper."""

import numpy as np

from keras_vit.inspection.figures.drawing import empty_axes, new_figure, save_figure

FILTER_COLUMNS = 7
# Size of a figure of tiles in inches, and the greatest number of tiles in a row or column.
TILES_SIZE = 9.0
MOST_TILES = 16


def draw_filters(components, shares, path):
    """Draw the principal components of filters as images.

    Each component is scaled to the whole range of colors, with 0 in the middle.

    Args:
        components: array `(count, height, width, channels)` from `filter_components`, with one or
            three channels.
        shares: array `(count,)` of the components' shares of the variance.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed, or the components do not have 1 or 3 channels.
    """
    if components.shape[-1] not in (1, 3):
        raise ValueError(
            "`components` must have 1 or 3 channels to be drawn. "
            f"Received: components of shape {components.shape}"
        )
    columns = min(FILTER_COLUMNS, len(components))
    rows = -(-len(components) // columns)
    # Wide enough for the title.
    figure = new_figure(max(1.3 * columns, 6), 1.5 * rows + 0.6)
    axes = empty_axes(figure, rows, columns)
    for axis, patch, share in zip(axes, components, shares, strict=False):
        picture = 0.5 + 0.5 * patch / max(np.abs(patch).max(), 1e-12)
        axis.imshow(np.repeat(picture, 3 // patch.shape[-1], axis=-1), interpolation="nearest")
        axis.set_title(f"{share:.1%}", fontsize=9)
    size = f"{components.shape[1]} x {components.shape[2]} pixels"
    figure.suptitle(f"Principal components of the filters, {size}\n(share of their variance)")
    save_figure(figure, path)


def draw_position_similarity(similarity, path):
    """Draw the similarity of position embeddings: one tile per patch, in its place.

    Only some rows and columns of a large grid are drawn, at equal distances.

    Args:
        similarity: array `(rows, columns, rows, columns)` from `position_similarity`.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    # At most `MOST_TILES` rows and columns, at equal distances.
    rows, columns = (range(0, n, -(-n // MOST_TILES)) for n in similarity.shape[:2])
    shape = len(rows) * similarity.shape[2], len(columns) * similarity.shape[3]
    scale = TILES_SIZE / max(shape)
    figure = new_figure(max(shape[1] * scale, 3) + 1.5, max(shape[0] * scale, 2) + 1)
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for axis_row, row in zip(axes, rows, strict=True):
        for axis, column in zip(axis_row, columns, strict=True):
            tile = axis.imshow(similarity[row, column], vmin=-1, vmax=1, cmap="viridis")
            axis.set(xticks=[], yticks=[])
    for axis, column in zip(axes[-1], columns, strict=True):
        axis.set_xlabel(column + 1, fontsize=9)
    for axis, row in zip(axes[:, 0], rows, strict=True):
        axis.set_ylabel(row + 1, fontsize=9, rotation=0, labelpad=8, va="center")
    figure.supxlabel("Input patch column")
    figure.supylabel("Input patch row")
    figure.colorbar(tile, ax=axes, label="Cosine similarity", fraction=0.05)
    figure.suptitle("Position embedding similarity")
    save_figure(figure, path)
