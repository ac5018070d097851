"""Draw the analyses of a model: filters, position embeddings, attention and tokens."""

import numpy as np
import scipy.ndimage

from keras_vit.inspection.figures.drawing import (
    as_picture,
    draw_tiles,
    empty_axes,
    new_figure,
    save_figure,
    shortened,
)

FILTER_COLUMNS = 7
# Size of a figure of tiles in inches, and the greatest number of tiles in a row or column.
TILES_SIZE = 9.0
MOST_TILES = 16
# Pairs of pictures in a row, and greatest number of images in which outliers are marked.
PAIR_COLUMNS = 4
MOST_MARKED = 4
# A legend of more heads would fill the figure.
MOST_NAMED_HEADS = 16


def draw_filters(components, shares, path):
    """Draw the principal components of filters as images.

    Each component is scaled to the whole range of colors; 0 is gray.

    Args:
        components: array `(count, height, width, channels)` from `filter_components`.
        shares: array `(count,)` of the components' shares of the variance.
        path: path of the PNG file to write.
    """
    columns = min(FILTER_COLUMNS, len(components))
    rows = -(-len(components) // columns)
    # Wide enough for the title.
    figure = new_figure(max(1.3 * columns, 6), 1.5 * rows + 0.6)
    pictures = [as_picture(patch / max(np.abs(patch).max(), 1e-12)) for patch in components]
    titles = [f"{share:.1%}" for share in shares]
    for axis in draw_tiles(figure, columns, pictures, titles, fontsize=9):
        axis.images[0].set_interpolation("nearest")
    size = f"{components.shape[1]} x {components.shape[2]} pixels"
    figure.suptitle(f"Principal components of the filters, {size}\n(share of their variance)")
    save_figure(figure, path)


def draw_position_similarity(similarity, path):
    """Draw the similarity of position embeddings: one tile per patch, at its position.

    Of more than `MOST_TILES` rows or columns, only some are drawn, at equal distances.

    Args:
        similarity: array `(rows, columns, rows, columns)` from `position_similarity`.
        path: path of the PNG file to write.
    """
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


def draw_attention_distance(distances, path):
    """Draw the attention distance of each head against the depth of the head's block.

    Args:
        distances: array `(blocks, heads)` from `attention_distance`, in pixels. Heads with NaN are
            left out.
        path: path of the PNG file to write.

    Reference:
        Figure 7 (right) of the ViT paper (arXiv 2010.11929).
    """
    from matplotlib import colormaps

    depth, heads = distances.shape
    figure = new_figure(8, 5)
    axis = figure.subplots()
    colors = colormaps["turbo"](np.linspace(0.05, 0.95, heads))
    for head, (points, color) in enumerate(zip(distances.T, colors, strict=True)):
        axis.scatter(np.arange(depth), points, color=color, s=28, label=f"Head {head}")
    means = np.ma.masked_invalid(distances).mean(axis=1)
    axis.plot(means, color="0.6", zorder=0, label="Mean of the heads")
    axis.set(xlabel="Network depth (block)", ylabel="Mean attention distance (pixels)")
    axis.set_ylim(0, max(1.08 * np.nan_to_num(distances).max(), 1))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)
    if heads <= MOST_NAMED_HEADS:
        figure.legend(loc="outside right upper", fontsize=8)
    axis.set_title("How far each head looks")
    save_figure(figure, path)


def _pairs_of_axes(images, has_titles=False):
    """Return a figure, and two axes for each image."""
    columns = min(PAIR_COLUMNS, len(images))
    rows = -(-len(images) // columns)
    height, width = images.shape[1:3]
    side = 1.6 * height / width + (0.25 if has_titles else 0)
    # Wide enough for the title.
    figure = new_figure(max(2 * 1.6 * columns, 7), rows * side + 0.8)
    return figure, empty_axes(figure, rows, 2 * columns).reshape(-1, 2)[: len(images)]


def draw_rollout(images, rollout, path, titles=None):
    """Draw each image without and with its attention rollout.

    The colors range from 0 to the 99th percentile of each image, because a few patches may
    contribute far more than all others.

    Args:
        images: array `(count, height, width, channels)` in [-1, 1].
        rollout: array `(count, rows, columns)` from `attention_rollout`.
        path: path of the PNG file to write.
        titles: title of each image, such as its class; `None` for no titles.

    Reference:
        Figure 6 and appendix D.8 of the ViT paper (arXiv 2010.11929).
    """
    from matplotlib import colormaps

    figure, pairs = _pairs_of_axes(images, titles is not None)
    rows = zip(pairs, images, rollout, titles or [""] * len(images), strict=True)
    for (left, right), image, weights, title in rows:
        # A title may span both pictures.
        left.set_title(shortened(title, 40), fontsize=8, loc="left")
        picture = as_picture(image)
        left.imshow(picture)
        largest = max(np.quantile(weights, 0.99), 1e-12)
        shares = upsample(np.minimum(weights / largest, 1), images.shape[1:3])
        # Blend colors, because the paper's mask shows nothing on dark images.
        colors = colormaps["viridis"](shares)[..., :3]
        right.imshow(0.4 * picture + 0.6 * colors)
    figure.suptitle("Images without and with attention rollout (dark: nothing, yellow: most)")
    save_figure(figure, path)


def draw_patch_colors(images, colors, path):
    """Draw each image next to the colors of its patches.

    Args:
        images: array `(count, height, width, channels)` in [-1, 1].
        colors: array `(count, rows, columns, 3)` in [0, 1] from `patch_colors`.
        path: path of the PNG file to write.

    Reference:
        Figure 1 of DINOv2 (arXiv 2304.07193).
    """
    figure, pairs = _pairs_of_axes(images)
    borders = (0, images.shape[2], images.shape[1], 0)
    for (left, right), image, patches in zip(pairs, images, colors, strict=True):
        left.imshow(as_picture(image))
        right.imshow(patches, extent=borders)
    figure.suptitle("Images, and principal components of their patches (black: background)")
    save_figure(figure, path)


def draw_token_norms(images, norms, outliers, grid, path):
    """Draw the norms of tokens by block, and mark patches with high norms in images.

    Args:
        images: array `(count, height, width, channels)` in [-1, 1]; the first ones are drawn.
        norms: array `(blocks, images, tokens)` from `token_norms`.
        outliers: bool array `(blocks, images, patches)` from `find_outliers`.
        grid: `(rows, columns)` of the patches.
        path: path of the PNG file to write.

    Reference:
        Vision Transformers Need Registers (arXiv 2309.16588), figures 2 to 4.
    """
    depth, _, num_patches = outliers.shape
    drawn = images[:MOST_MARKED]
    figure = new_figure(7 + 2 * len(drawn), 4)
    charts, marked = figure.subfigures(1, 2, width_ratios=(7, 2 * len(drawn)))
    axis, blocks = charts.subplots(), np.arange(depth)
    patches = norms[..., -num_patches:]
    low, middle, high = np.quantile(patches, (0.01, 0.5, 0.99), axis=(1, 2))
    axis.fill_between(blocks, low, high, alpha=0.3, label="98 % of the patches")
    axis.plot(blocks, middle, label="Median of the patches")
    for token in range(norms.shape[-1] - num_patches):
        label = "Class token and registers" if token == 0 else None
        axis.plot(blocks, norms[..., token].mean(axis=1), "k--", linewidth=1, label=label)
    where = np.nonzero(outliers)
    axis.scatter(where[0], patches[where], color="red", s=10, zorder=3, label="Outliers")
    axis.set(xlabel="Network depth (block)", ylabel="Norm of a token", yscale="log")
    is_outlier = outliers.any(axis=0)
    counts = f"{is_outlier.sum():,} of {is_outlier.size:,}"
    axis.set_title(f"{counts} patches are outliers in at least one block", fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    height, width = images.shape[1] / grid[0], images.shape[2] / grid[1]
    axes = empty_axes(marked, 1, len(drawn))
    for axis, image, own in zip(axes, drawn, is_outlier, strict=False):
        axis.imshow(as_picture(image))
        rows, columns = np.nonzero(own.reshape(grid))
        x, y = (columns + 0.5) * width, (rows + 0.5) * height
        axis.scatter(x, y, marker="s", s=12, facecolors="none", edgecolors="red")
        axis.set_title(f"outliers: {len(rows)}", fontsize=8)
    save_figure(figure, path)


def draw_heads(image, scores, grid, path, query=0):
    """Draw the attention of a token to the patches of an image, in each head of each block.

    A cross marks the token if it is a patch. The colors of each map range from 0 to its greatest
    value, because some heads attend to patches much less than others.

    Args:
        image: array `(height, width, channels)` in [-1, 1].
        scores: dictionary from names of blocks to arrays `(heads, tokens, tokens)`, from
            `attention_maps` for the image.
        grid: `(rows, columns)` of the patches.
        path: path of the PNG file to write.
        query: index of the attending token, such as 0 for the class token.
    """
    heads = max(len(block) for block in scores.values())
    side = min(1.1, 16 / (heads + 1))
    ratio = image.shape[0] / image.shape[1]
    # Patches need not be square.
    aspect = ratio * grid[1] / grid[0]
    num_prefix = next(iter(scores.values())).shape[-1] - grid[0] * grid[1]
    figure = new_figure(max(side * (heads + 1) + 0.5, 4), side * ratio * len(scores) + 1)
    axes = figure.subplots(len(scores), heads + 1, squeeze=False)
    for axis_row, (name, block) in zip(axes, scores.items(), strict=True):
        for axis in axis_row:
            axis.set(xticks=[], yticks=[], frame_on=False)
        axis_row[0].imshow(as_picture(image))
        axis_row[0].set_ylabel(name.replace("block_", "block "), fontsize=8)
        for axis, head in zip(axis_row[1:], block, strict=True):
            patches = head[query, -grid[0] * grid[1] :].reshape(grid)
            axis.imshow(patches, vmin=0, cmap="viridis", aspect=aspect)
            if query >= num_prefix:
                row, column = divmod(query - num_prefix, grid[1])
                axis.plot(column, row, "rx", markersize=4)
    for head, axis in enumerate(axes[0, 1:]):
        axis.set_title(f"head {head}", fontsize=8)
    axes[0, 0].set_title("input", fontsize=8)
    figure.suptitle("Attention of each head to the patches (dark: none, yellow: most)", fontsize=10)
    save_figure(figure, path)


def upsample(weights, size):
    """Resize a map of patches to the size of the image, linearly between the patches' centers."""
    factors = [pixels / count for pixels, count in zip(size, weights.shape, strict=True)]
    return scipy.ndimage.zoom(weights, factors, order=1, mode="nearest", grid_mode=True)
