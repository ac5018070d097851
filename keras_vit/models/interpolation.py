"""Interpolate position embeddings for another grid, and patch kernels for another patch size."""

import math

import numpy as np
import numpy.typing as npt
import scipy.ndimage

from keras_vit.core.arguments import as_pair, check_choice

METHODS = ("bilinear", "bicubic", "linear", "cubic")
KERNEL_METHODS = ("bilinear", "bicubic")


def resize_position_embedding(
    table: npt.ArrayLike,
    target_grid: tuple[int, int],
    source_grid: tuple[int, int] | None = None,
    num_prefix_tokens: int = 1,
    method: str = "bilinear",
) -> np.ndarray:
    """Interpolate position embeddings in 2-D, according to their position in the image.

    The table has the shape `(1, prefix + rows * columns, width)`. The result has the shape
    `(1, prefix + target_rows * target_columns, width)` and the table's dtype. Embeddings of prefix
    tokens (the class token) are copied unchanged.

    Args:
        table: NumPy array of position embeddings.
        target_grid: `(rows, columns)` of patches of the result.
        source_grid: `(rows, columns)` of patches of the table; `None` if it is square.
        num_prefix_tokens: number of tokens before the patches, such as 1 for a class token.
        method: `"bilinear"`, corner-aligned, as in the original; `"bicubic"`, antialiased, as in
            timm; `"linear"`, bilinear and antialiased, as in FlexiViT; or `"cubic"`, bicubic but
            not antialiased, as in transformers. All but `"bilinear"` have half-pixel centers.

    Returns:
        A NumPy array.

    Raises:
        ValueError: if the number of embeddings is not that of the source grid, `target_grid` is not
            a pair of positive integers, or `method` is unknown.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929); `interpolate_posembed` in
        `vit_jax/checkpoint.py`, without the zeros that SciPy's `mode="constant"` leaves at the
        last row and column of some sizes; `resample_abs_pos_embed` in timm; `resample_posemb` in
        `models/proj/flexi/vit.py` of big_vision.

    Example:
    >>> table = np.random.default_rng(0).normal(size=(1, 1 + 4 * 4, 8))
    >>> keras_vit.resize_position_embedding(table, target_grid=(6, 8)).shape
    (1, 49, 8)
    """
    table = np.asarray(table)
    check_choice("method", method, METHODS)
    target_grid = as_pair(target_grid, "target_grid")
    source_grid = _source_grid(table, source_grid, num_prefix_tokens)
    prefix, grid = table[:, :num_prefix_tokens], table[:, num_prefix_tokens:]
    if tuple(source_grid) == target_grid:
        return table.copy()
    grid = grid.reshape(*source_grid, table.shape[-1]).astype("float64")
    if method == "bilinear":
        resized = _corner_aligned(grid, target_grid)
    else:
        kernel = {"bicubic": _cubic, "linear": _triangle, "cubic": _sharper_cubic}[method]
        sizes = grid.shape[:2], target_grid
        if method == "cubic":
            # Beyond the border, torch repeats the last row and column.
            rows, columns = (_repeating_weights(kernel, *pair) for pair in zip(*sizes, strict=True))
        else:
            rows, columns = _weights_of_both(kernel, *sizes, antialias=True)
        resized = np.einsum("yr,xc,rcw->yxw", rows, columns, grid)
    resized = resized.reshape(1, -1, table.shape[-1]).astype(table.dtype)
    return np.concatenate([prefix, resized], axis=1)


def resize_line_embedding(embeddings, size, method="bilinear"):
    """Interpolate the row embeddings or the column embeddings of `AddPositionEmbedding2D`.

    Args:
        embeddings: NumPy array `(rows, 1, width)` or `(1, columns, width)`.
        size: the first two axes of the result.
        method: as in `resize_position_embedding`.

    Returns:
        A NumPy array `(*size, width)`.

    Example:
    >>> from keras_vit.models.interpolation import resize_line_embedding
    >>> resize_line_embedding(np.arange(3.0).reshape(3, 1, 1), (5, 1)).ravel()
    array([0. , 0.5, 1. , 1.5, 2. ])
    """
    *grid, width = embeddings.shape
    table = embeddings.reshape(1, -1, width)
    return resize_position_embedding(table, size, grid, 0, method).reshape(*size, width)


def resize_relative_embedding(table, source_grid, target_grid, method="bilinear"):
    """Interpolate embeddings of offsets between patches for another grid.

    An offset in the sequence of patches belongs to one or two displacements in rows and columns.
    Each displacement has the embedding of its offset, and these are interpolated in 2-D. The new
    embedding of an offset is the mean over its displacements, weighted by how many pairs of patches
    have the displacement. The ViT paper does not say how it interpolates relative embeddings.

    Args:
        table: NumPy array `(offsets, width)`, as `MultiHeadAttention` stores it: row `i` is for
            the offset `patches - 1 - i` from the key to the query.
        source_grid: `(rows, columns)` of patches of the table.
        target_grid: `(rows, columns)` of patches of the result.
        method: as in `resize_position_embedding`.

    Returns:
        A NumPy array of the table's dtype.

    Example:
    >>> from keras_vit.models.interpolation import resize_relative_embedding
    >>> table = np.random.default_rng(0).normal(size=(2 * 6 - 1, 8))
    >>> resize_relative_embedding(table, source_grid=(2, 3), target_grid=(4, 3)).shape
    (23, 8)
    """
    sources = _rows_of_displacements(source_grid)
    by_displacement = table[sources].reshape(1, -1, table.shape[-1])
    grids = [tuple(2 * n - 1 for n in grid) for grid in (target_grid, source_grid)]
    by_displacement = resize_position_embedding(by_displacement, *grids, 0, method)[0]
    targets = _rows_of_displacements(target_grid).ravel()
    # In a grid with `size` rows, `size - |n|` pairs of rows have the displacement `n`.
    counts = [size - np.abs(np.arange(1 - size, size)) for size in target_grid]
    weights = np.outer(*counts).ravel().astype("float64")
    sums = np.zeros((2 * math.prod(target_grid) - 1, table.shape[-1]))
    np.add.at(sums, targets, weights[:, None] * by_displacement)
    totals = np.bincount(targets, weights)[:, None]
    return (sums / totals).astype(table.dtype)


def adapt_kernel(kernel, channels):
    """Adapt the first kernel of a model to another number of channels, as timm does.

    For one channel, the kernels of the channels are added. Otherwise they are repeated and cut, and
    multiplied by the old number of channels divided by the new one.

    Args:
        kernel: float32 array `(height, width, channels, filters)`.
        channels: the new number of channels.

    Returns:
        A float32 array `(height, width, channels, filters)`.

    Reference:
        `adapt_input_conv` in `timm/models/_manipulate.py`.

    Example:
    >>> from keras_vit.models.interpolation import adapt_kernel
    >>> kernel = np.array([1, 2, 3], "float32").reshape(1, 1, 3, 1)
    >>> adapt_kernel(kernel, 1).ravel(), adapt_kernel(kernel, 4).ravel()
    (array([6.], dtype=float32), array([0.75, 1.5 , 2.25, 0.75], dtype=float32))
    """
    if channels == 1:
        return kernel.sum(axis=2, keepdims=True)
    old = kernel.shape[2]
    return kernel[:, :, np.arange(channels) % old] * np.float32(old / channels)


def resize_patch_kernel(
    kernel: npt.ArrayLike, patch_size: int | tuple[int, int], method: str = "bilinear"
) -> np.ndarray:
    """Change the kernel of a patch embedding for patches of another size.

    The kernel is multiplied by the pseudo-inverse of resizing. If patches are resized to a larger
    size, the new kernel gives the same tokens as before. If they are resized to a smaller size, it
    gives tokens that are as close as possible. The bias of the patch embedding does not change.

    Args:
        kernel: NumPy array `(height, width, channels, filters)`.
        patch_size: int or `(height, width)` of the result, in pixels.
        method: how patches are resized: `"bilinear"` without antialiasing, as in FlexiViT, or
            `"bicubic"` with antialiasing, as in timm by default.

    Returns:
        A NumPy array `(*patch_size, channels, filters)` of the kernel's dtype.

    Raises:
        ValueError: if the kernel does not have four axes, `patch_size` is not positive, or `method`
            is unknown.

    Reference:
        FlexiViT (arXiv 2212.08013), section 3.4; `resample_patchemb` in
        `models/proj/flexi/vit.py` of big_vision; `resample_patch_embed` in timm.

    Example:
    >>> kernel = np.random.default_rng(0).normal(size=(8, 8, 3, 16))
    >>> keras_vit.resize_patch_kernel(kernel, patch_size=12).shape
    (12, 12, 3, 16)
    """
    kernel = np.asarray(kernel)
    check_choice("method", method, KERNEL_METHODS)
    patch_size = as_pair(patch_size, "patch_size")
    if kernel.ndim != 4:
        raise ValueError(
            "`kernel` must have the shape `(height, width, channels, filters)`. "
            f"Received: kernel of {kernel.shape}"
        )
    if kernel.shape[:2] == patch_size:
        return kernel.copy()
    is_bicubic = method == "bicubic"
    weights = _weights_of_both(
        _cubic if is_bicubic else _triangle, kernel.shape[:2], patch_size, antialias=is_bicubic
    )
    rows, columns = (np.linalg.pinv(weight.T) for weight in weights)
    resized = np.einsum("yr,xc,rcif->yxif", rows, columns, kernel.astype("float64"))
    return resized.astype(kernel.dtype)


def _source_grid(table, source_grid, num_prefix_tokens):
    if table.ndim != 3 or table.shape[0] != 1:
        raise ValueError(
            f"`table` must have the shape `(1, tokens, width)`. Received: table of {table.shape}"
        )
    num_patches = table.shape[1] - num_prefix_tokens
    if source_grid is None:
        side = math.isqrt(max(num_patches, 0))
        source_grid = (side, side)
    if source_grid[0] * source_grid[1] != num_patches or num_patches == 0:
        raise ValueError(
            "`source_grid` must be given unless the grid is square, and must have the table's "
            f"{num_patches} patches, which come after {num_prefix_tokens} prefix tokens. "
            f"Received: source_grid={tuple(source_grid)}"
        )
    return source_grid


def _rows_of_displacements(grid):
    """Return the row of each displacement between two patches of a grid in a table of offsets."""
    down, right = (np.arange(1 - size, size) for size in grid)
    return math.prod(grid) - 1 - (down[:, None] * grid[1] + right)


def _corner_aligned(grid, target_grid):
    zoom = (target_grid[0] / grid.shape[0], target_grid[1] / grid.shape[1], 1)
    return scipy.ndimage.zoom(grid, zoom, order=1, mode="nearest")


def _weights_of_both(kernel, source, target, antialias):
    """Return the weights for the rows and the weights for the columns, each `(target, source)`."""
    return [_weights(kernel, *sizes, antialias) for sizes in zip(source, target, strict=True)]


def _weights(kernel, source, target, antialias):
    """Return the weights `(target, source)` of a filter with half-pixel centers."""
    scale = source / target
    centers = (np.arange(target) + 0.5) * scale - 0.5
    # To shrink with antialiasing, the filter is widened so that every source row counts.
    width = max(scale, 1) if antialias else 1
    weights = kernel(np.abs(np.arange(source) - centers[:, None]) / width)
    return weights / weights.sum(axis=1, keepdims=True)


def _repeating_weights(kernel, source, target):
    """Return weights without antialiasing, where rows beyond the border repeat the border row."""
    centers = (np.arange(target) + 0.5) * source / target - 0.5
    neighbors = np.floor(centers)[:, None] + np.arange(-1, 3)
    weights = np.zeros((target, source))
    columns = np.clip(neighbors, 0, source - 1).astype(int)
    values = kernel(np.abs(neighbors - centers[:, None]))
    np.add.at(weights, (np.arange(target)[:, None], columns), values)
    return weights


def _triangle(distance):
    return np.maximum(0, 1 - distance)


def _cubic(distance, a=-0.5):
    """Return the weights of PIL's and torch's antialiased bicubic filter (a = -0.5)."""
    inner = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance < 1, inner, np.where(distance < 2, outer, 0))


def _sharper_cubic(distance):
    """Return the weights of torch's bicubic filter that is not antialiased."""
    return _cubic(distance, a=-0.75)
