"""Mean attention distance of the heads of a model."""

import numpy as np
from keras import ops

from keras_vit.inspection.attention import AttentionSummary, summarise_attention
from keras_vit.models.parts import find_blocks, token_grid, token_stride


def attention_distance(model, images, batch_size=32, verbose=0):
    """Return the mean attention distance of each head, comparable to a receptive field size.

    The distances from a patch to all patches, 0 for itself, are weighted by its attention to them
    and averaged over patches and images. The class token and registers have no position in the
    image: they are left out, and the attention among the patches is divided by its sum. A patch
    that attends to no patch is left out too. The scores are reduced batch by batch.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            batches of them.
        batch_size: number of images per step.
        verbose: as in `keras.Model.predict`.

    Returns:
        A float32 array `(blocks, heads)`, in pixels of the model's images; an axial block counts as
        two, along rows and along columns. It is NaN for a head without attention among patches.

    Raises:
        ValueError: if the model has no Transformer blocks; or if `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].

    Reference:
        Section 4.5, figure 7 and appendix D.7 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> attention_distance(model, np.zeros((2, 32, 32, 3))).shape
    (12, 3)
    """
    # Models without attention are refused before their grid is asked for.
    find_blocks(model)
    measure = _measure(model, images)
    found = summarise_attention(model, images, measure, batch_size=batch_size, verbose=verbose)
    sums, counts = np.moveaxis(found.sum(axis=0, dtype="float64"), -1, 0)
    return _means(sums, counts)


def image_distances(model):
    """Return a function from a batch of images to the distances in each of them.

    It returns a float32 array `(images, blocks, heads)`; see `attention_distance`.
    """
    summary = AttentionSummary(model, find_blocks(model), (), _measure(model))

    def distances(images):
        return _means(*np.moveaxis(np.array(summary.predict_on_batch(images)), -1, 0))

    return distances


def _means(sums, counts):
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return means.astype("float32")


def _measure(model, images=None):
    """Return a function from scores to `(images, blocks, heads, 2)`.

    The last axis has the sum of the mean distances of patches, and the number of these patches.
    """
    distances = patch_distances(token_grid(model, images), token_stride(model))
    num_patches = len(distances)

    def measure(scores, _):
        pixels = ops.convert_to_tensor(distances)
        blocks = []
        for block_scores in scores:
            among_patches = block_scores[:, :, -num_patches:, -num_patches:]
            total = ops.sum(among_patches, axis=-1)
            attends = total > 0
            weighted = ops.sum(among_patches * pixels, axis=-1) / ops.where(attends, total, 1)
            sums = ops.sum(weighted, axis=-1), ops.sum(ops.cast(attends, "float32"), axis=-1)
            blocks.append(ops.stack(sums, axis=-1))
        return ops.stack(blocks, axis=1)

    return measure


def patch_distances(grid, stride):
    """Return the distances between the centers of patches.

    Args:
        grid: `(rows, columns)` of the patches.
        stride: `(height, width)` of a patch, in pixels.

    Returns:
        A float32 array `(patches, patches)`, in pixels.

    Example:
    >>> patch_distances((1, 3), (16, 16))[0]
    array([ 0., 16., 32.], dtype=float32)
    """
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    centers = np.stack([rows * stride[0], columns * stride[1]], axis=-1)
    return np.linalg.norm(centers[:, None] - centers[None], axis=-1).astype("float32")
