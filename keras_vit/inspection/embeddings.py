"""Principal components of the patch filters, and similarity of position embeddings."""

import numpy as np

from keras_vit.models.parts import first_kernel, position_table, stored_grid


def filter_components(model, count=28):
    """Return the principal components of a model's first filters.

    These are the filters of the patch embedding; of a hybrid or a ResNet, those of the first
    convolution, after standardization. The leading components of a trained model resemble basis
    functions for the fine structure of a patch.

    Args:
        model: a model of this package.
        count: number of components; fewer are returned if the filters have no more.

    Returns:
        `(components, shares)`: a float32 array `(count, height, width, channels)` of components of
        length 1, whose sign has no meaning; and the share of the filters' variance of each.

    Reference:
        Section 4.5, figure 7 (left) of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> components, shares = filter_components(model)
    >>> components.shape, shares.shape
    ((28, 16, 16, 3), (28,))
    """
    kernel = first_kernel(model)
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    # Subtracting the mean leaves one dimension less.
    count = min(count, filters.shape[0] - 1, filters.shape[1])
    _, sizes, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    shares = sizes**2 / (sizes**2).sum()
    shape = (count, *kernel.shape[:-1])
    return components[:count].reshape(shape).astype("float32"), shares[:count].astype("float32")


def position_similarity(model):
    """Return the cosine similarity between the position embeddings of all patches.

    Args:
        model: a model of this package with position embeddings, learned or not.

    Returns:
        A float32 array `(rows, columns, rows, columns)` from -1 to 1: `[row, column]` is the tile
        of the patch in that row and column.

    Raises:
        ValueError: if the model has no position embeddings.

    Reference:
        Section 4.5, figure 7 (center) of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> position_similarity(model).shape
    (2, 2, 2, 2)
    """
    table = position_table(model)
    grid = stored_grid(model)
    # The rows of the class token and of registers come first.
    table = table[-grid[0] * grid[1] :]
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    # Zero embeddings get a similarity of 0.
    table = table / np.where(lengths > 0, lengths, 1)
    return (table @ table.T).reshape(*grid, *grid).astype("float32")
