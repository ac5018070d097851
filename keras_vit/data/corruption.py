"""Masked patch prediction: corrupt patches of images, and compute the targets for a model."""

import dataclasses

import tensorflow as tf

from keras_vit.core.arguments import COLOR_LEVELS, TARGETS, as_pair, check_choice, grid_size
from keras_vit.data.dataset import Dataset

# Number of rows, and of columns, of a downsized patch.
CELLS = 4
# 80 % of the corrupted patches are masked, 10 % are replaced by another patch, and 10 % are kept.
MASKED, RANDOM = 0.8, 0.1
# `CorruptPatches` replaces this index by the `[mask]` embedding.
MASK = -1


def mask_patches(
    dataset: tf.data.Dataset | Dataset,
    patch_size: int | tuple[int, int],
    target: str = "mean_color",
    share: float = 0.5,
    start_step: int = 0,
    seed: int = 0,
) -> tf.data.Dataset | Dataset:
    """Turn batches of images into batches for masked patch prediction with `model.fit`.

    Batches are `(inputs, targets, sample_weights)`. The inputs are `{"images", "corruption"}`.
    `corruption`, int32 `(batch, patches)`, defines the embedding of each patch, row by row: the
    index of the patch whose embedding is used, or -1 for the `[mask]` embedding. Corrupted patches
    have equal weights, other patches have weight 0, and the mean weight is 1.

    The corruption of a batch is drawn from the seed and the index of the batch. So a repeated
    dataset has other corruptions in each epoch, and a dataset without repetition, such as a
    validation split, has the same corruptions in each pass.

    Args:
        dataset: batches of `(images, labels)` from `keras_vit.data.load`, or its `info.dataset`;
            labels are not used.
        patch_size: int or `(height, width)` in pixels, the size of the patches.
        target: what is predicted for each patch: `"mean_color"`, one of 512 colors, int32
            `(batch, patches)`; `"downsized"`, the colors of 4 x 4 cells, int32
            `(batch, patches, 16)`; or `"pixels"`, float32 `(batch, patches, height * width * 3)`.
        share: share of the patches of each image that are corrupted.
        start_step: index of the first batch, to resume a repeated `tf.data.Dataset`; ignored if
            `dataset` is a `Dataset`, which has a field `start_step`.
        seed: seed of the corruption.

    Returns:
        A `tf.data.Dataset`, or a new `Dataset` if `dataset` is a `Dataset`.

    Raises:
        ValueError: if the patches do not tile the images or are too small for the target, `share`
            is out of range, or the target is unknown.

    Reference:
        Sections 4.6 and B.1.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> digits = keras_vit.data.load("digits", "test", image_size=(16, 16), batch_size=32)
    >>> masked = mask_patches(digits, patch_size=4)
    >>> inputs, targets, weights = next(masked.as_numpy_iterator())
    >>> inputs["images"].shape, inputs["corruption"].shape, targets.shape
    ((32, 16, 16, 3), (32, 16), (32, 16))
    >>> float(weights.max()), float(weights.mean())
    (2.0, 1.0)
    """
    is_own_dataset = isinstance(dataset, Dataset)
    image_size = dataset.maker.image_size if is_own_dataset else dataset.element_spec[0].shape[1:3]
    patch_size = as_pair(patch_size, "patch_size")
    grid = grid_size(tuple(image_size), patch_size)
    check_choice("target", target, TARGETS)
    if target == "downsized" and min(patch_size) < CELLS:
        raise ValueError(
            f"`target='downsized'` needs patches of at least {CELLS} x {CELLS} pixels. "
            f"Received: patch_size={patch_size}"
        )
    num_corrupted = round(share * grid[0] * grid[1])
    if not 1 <= num_corrupted <= grid[0] * grid[1]:
        raise ValueError(
            f"`share` must select from 1 to {grid[0] * grid[1]} patches of an image. "
            f"Received: share={share!r}, which selects {num_corrupted}"
        )

    def mask(step, batch):
        images, _ = batch
        batch_seed = tf.stack([tf.constant(seed, tf.int64), step])
        seeds = tf.random.experimental.stateless_split(batch_seed, 3)
        shape = (tf.shape(images)[0], grid[0] * grid[1])
        # The first patches of a random order are corrupted.
        order = tf.argsort(tf.random.stateless_uniform(shape, seeds[0]), axis=-1)
        corrupted = tf.argsort(order, axis=-1) < num_corrupted
        inputs = {"images": images, "corruption": _draw_corruption(corrupted, seeds[1:])}
        targets = _make_targets(images, grid, patch_size, target)
        weights = tf.cast(corrupted, tf.float32) * (grid[0] * grid[1] / num_corrupted)
        if target == "downsized":
            weights = tf.repeat(weights[..., None], CELLS**2, axis=-1)
        return inputs, targets, weights

    def masked(batches, start_step):
        # `load` also prefetches two batches: more would take much memory.
        result = batches.enumerate(start_step).map(mask).prefetch(2)
        # `load` replaced `cardinality`, because TensorFlow cannot compute the length. Copy the
        # replacement.
        result.cardinality = batches.cardinality
        return result

    if is_own_dataset:
        return dataclasses.replace(dataset, finish=masked)
    return masked(dataset, start_step)


def _draw_corruption(corrupted, seeds):
    """Draw for each patch the index of the patch whose embedding is used, or `MASK`."""
    shape = tf.shape(corrupted)
    patches = tf.range(shape[1])[None]
    offsets = tf.random.stateless_uniform(shape, seeds[0], 1, shape[1], tf.int32)
    kind = tf.random.stateless_uniform(shape, seeds[1])
    replaced = tf.where(kind < MASKED + RANDOM, (patches + offsets) % shape[1], patches)
    changed = tf.where(kind < MASKED, MASK, replaced)
    return tf.where(corrupted, changed, patches)


def _make_targets(images, grid, patch_size, target):
    cells = {"mean_color": (1, 1), "downsized": (CELLS, CELLS), "pixels": patch_size}[target]
    if target != "pixels":
        # Patches tile the image, so resizing the whole image averages within each patch.
        size = (grid[0] * cells[0], grid[1] * cells[1])
        images = tf.image.resize(images, size, tf.image.ResizeMethod.AREA)
    patches = tf.reshape(images, (-1, grid[0], cells[0], grid[1], cells[1], 3))
    patches = tf.transpose(patches, (0, 1, 3, 2, 4, 5))
    num_patches, num_cells = grid[0] * grid[1], cells[0] * cells[1]
    if target == "pixels":
        return tf.reshape(patches, (-1, num_patches, num_cells * 3))
    colors = encode_colors(tf.reshape(patches, (-1, num_patches, num_cells, 3)))
    return colors[..., 0] if target == "mean_color" else colors


def encode_colors(colors):
    """Return the number, from 0 to 511, of each color with 8 levels of red, green and blue.

    Args:
        colors: float tensor `(..., 3)` in [-1, 1].

    Returns:
        An int32 tensor `(...)`: 64 * red + 8 * green + blue, with levels from 0 to 7.

    Example:
    >>> from keras_vit.data.corruption import encode_colors
    >>> encode_colors([[-1.0, -1.0, -1.0], [1.0, -1.0, -0.7]]).numpy()
    array([  0, 449], dtype=int32)
    """
    levels = tf.cast((tf.convert_to_tensor(colors) + 1) * (COLOR_LEVELS / 2), tf.int32)
    levels = tf.clip_by_value(levels, 0, COLOR_LEVELS - 1)
    return tf.reduce_sum(levels * (COLOR_LEVELS**2, COLOR_LEVELS, 1), axis=-1)
