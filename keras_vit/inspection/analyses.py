"""Analyze a trained model: attention, tokens, filters, position embeddings."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import check_choice
from keras_vit.models.features import features
from keras_vit.models.image_model import check_images
from keras_vit.models.inference import for_inference
from keras_vit.models.structure import (
    attention_names,
    find_attention_pooling,
    find_blocks,
    first_kernel,
    has_class_output,
    num_prefix_tokens,
    position_table,
    stored_grid,
    token_grid,
    token_layer_names,
    token_stride,
)


def attention_maps(
    model: keras.Model, images: Any, blocks: Sequence[str] | None = None, batch_size: int = 32
) -> dict[str, np.ndarray]:
    """Return the attention scores between all tokens, in each head of each block.

    The model may be new, trained, loaded from a file, or composed by hand from blocks of this
    package. It does not change. The scores of ViT-B/16 take 22 MB per image. `attention_rollout`
    and `attention_distance` take less memory, because they reduce the scores of each batch.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            such arrays.
        blocks: names of blocks, such as `["block_11"]`; all by default.
        batch_size: number of images per step.

    Returns:
        A dictionary from names of blocks to float32 arrays `(batch, heads, tokens, tokens)`. The
        last axis is over the attended tokens, and sums to 1. The class token and registers come
        first, then the patches, row by row. An axial block has two arrays: `"block_11/rows"` is 0
        between patches of different rows, and `"block_11/columns"` is 0 between patches of
        different columns.

    Raises:
        ValueError: if the model has no Transformer blocks; or if `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].
        KeyError: if the model has no block of a given name.

    Reference:
        Appendix A of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> maps = keras_vit.attention_maps(model, np.zeros((2, 32, 32, 3)))
    >>> maps["block_11"].shape
    (2, 3, 5, 5)
    """
    named = {block.name: block for block in find_blocks(model)}
    chosen = [named[name] for name in (named if blocks is None else blocks)]
    maps = summarize_attention(model, images, lambda s, _: [*s], chosen, batch_size=batch_size)
    return dict(zip(attention_names(chosen), maps, strict=True))


def summarize_attention(model, images, summarize, blocks=None, layers=(), batch_size=32, verbose=0):
    """Apply a function to the attention scores of a model's blocks, batch by batch.

    Args:
        model: a model of this package with Transformer blocks.
        images: as in `attention_maps`.
        summarize: function of an iterator over the blocks' scores and the list of the inputs of
            `layers`. The scores are tensors `(batch, heads, tokens, tokens)`; an axial block has
            two. The function returns a tensor or a list of tensors with one entry per image.
        blocks: list of the blocks; all by default.
        layers: other layers of the model whose inputs `summarize` needs.
        batch_size: number of images per step.
        verbose: as in `keras.Model.predict`.

    Returns:
        The results of `summarize` for all images, as arrays.

    Raises:
        ValueError: if the model has no Transformer blocks; or if `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].
    """
    blocks = find_blocks(model) if blocks is None else blocks
    summary = AttentionSummary(model, blocks, layers, summarize)
    check_images(images)
    return summary.predict(images, batch_size=batch_size, verbose=verbose)


class AttentionSummary(keras.Model):
    """A model up to the inputs of its blocks, followed by a function of the blocks' scores.

    The blocks are never called on symbolic tensors: such calls would add nodes to the graph of the
    original model.
    """

    def __init__(self, model, blocks, layers, summarize):
        super().__init__(name="attention_summary")
        inputs = {layer.name: layer.input for layer in (*blocks, *layers)}
        self.inputs_of = for_inference(keras.Model(model.input, inputs))
        self.blocks = blocks
        self.other_layers = layers
        self.summarize = summarize

    def call(self, images):
        inputs = self.inputs_of(images)
        scores = (
            scores
            for block in self.blocks
            for scores in _as_tuple(block.attention_scores(inputs[block.name]))
        )
        return self.summarize(scores, [inputs[layer.name] for layer in self.other_layers])


def _as_tuple(scores):
    return scores if isinstance(scores, tuple) else (scores,)


def attention_distance(model, images, batch_size=32, verbose=0):
    """Return the mean attention distance of each head, comparable to a receptive field size.

    The distances from a patch to all patches (0 to itself) are weighted by the patch's attention
    and added up. The mean of the sums is over patches and images. The class token and registers
    have no position in the image: they are left out, and a patch's attention to all patches is
    rescaled to sum to 1. A patch that attends to no patch is left out. Only the scores of one batch
    are in memory at a time.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            such arrays.
        batch_size: number of images per step.
        verbose: as in `keras.Model.predict`.

    Returns:
        A float32 array `(blocks, heads)`, in pixels of the model's images. An axial block counts as
        two blocks, one along rows and one along columns. The distance of a head without attention
        among patches is NaN.

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
    # Raise an error for models without attention, before their grid is needed.
    find_blocks(model)
    sum_up = _distance_sums(model, images)
    parts = summarize_attention(model, images, sum_up, batch_size=batch_size, verbose=verbose)
    sums, counts = np.moveaxis(parts.sum(axis=0, dtype="float64"), -1, 0)
    return _means(sums, counts)


def image_distances(model):
    """Return a function from a batch of images to the attention distances in each image.

    It returns a float32 array `(images, blocks, heads)`; see `attention_distance`.
    """
    summary = AttentionSummary(model, find_blocks(model), (), _distance_sums(model))

    def distances(images):
        return _means(*np.moveaxis(np.array(summary.predict_on_batch(images)), -1, 0))

    return distances


def _means(sums, counts):
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return means.astype("float32")


def _distance_sums(model, images=None):
    """Return a function for `summarize_attention` that sums up the distances in each image.

    It returns `(images, blocks, heads, 2)`. The last axis has the sum of the mean distances of the
    patches that attend to patches, and the number of these patches.
    """
    distances = patch_distances(token_grid(model, images), token_stride(model))
    num_patches = len(distances)

    def sum_up(scores, _):
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

    return sum_up


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


def attention_rollout(model: keras.Model, images: Any, batch_size: int = 32) -> np.ndarray:
    """Return how much each patch contributes to the output through the attention of all blocks.

    The scores of a block are averaged over its heads, the identity is added for the residual
    connection, rows are divided by their sums, and the blocks' matrices are multiplied. An axial
    block has two matrices, each with a residual connection. The result is the row of the class
    token, even if the model has a distillation token or `pooling="token_gap"`. For `pooling="gap"`
    it is the mean of the patches' rows. For `pooling="map"`, the mean is weighted by the attention
    of the probe.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            such arrays.
        batch_size: number of images per step.

    Returns:
        A float32 array `(batch, rows, columns)` of the patches' shares. Their sum is 1 minus the
        shares of the class token and registers.

    Raises:
        ValueError: if the model has no Transformer blocks; or if `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].

    Reference:
        Section 4.5 and appendix D.8 of the ViT paper (arXiv 2010.11929); Quantifying Attention Flow
        in Transformers (arXiv 2005.00928).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.attention_rollout(model, np.zeros((2, 32, 32, 3))).shape
    (2, 2, 2)
    """
    grid, probes = token_grid(model, images), find_attention_pooling(model)

    def roll_out(scores, inputs):
        steps = map(_with_residual, scores)
        joint = functools.reduce(lambda joint, step: ops.matmul(step, joint), steps)
        return _output_row(model, joint, probes, inputs, grid)

    return summarize_attention(model, images, roll_out, layers=probes, batch_size=batch_size)


def _with_residual(scores):
    """Return the mean over heads plus the identity, with rows that sum to 1."""
    matrix = ops.mean(scores, axis=1)
    matrix = matrix + ops.eye(matrix.shape[-1], dtype=matrix.dtype)
    return matrix / ops.sum(matrix, axis=-1, keepdims=True)


def _output_row(model, joint, probes, inputs, grid):
    """Return the share of each patch in the output token, `(batch, rows, columns)`."""
    num_patches = grid[0] * grid[1]
    from_patches = joint[:, :, -num_patches:]
    if probes:
        scores = probes[0](inputs[0], return_attention_scores=True)[1]
        # The probe attends to the patches only.
        row = ops.matmul(ops.mean(scores, axis=1), from_patches[:, -num_patches:])[:, 0]
    elif has_class_output(model):
        row = from_patches[:, 0]
    else:
        row = ops.mean(from_patches[:, -num_patches:], axis=1)
    return ops.reshape(row, (-1, *grid))


def filter_components(model, count=28):
    """Return the principal components of a model's first filters.

    The first filters are those of the patch embedding or, in a hybrid or a ResNet, the standardized
    filters of the first convolution. The leading components of a trained model resemble basis
    functions for the fine structure of a patch.

    Args:
        model: a model of this package.
        count: greatest number of components.

    Returns:
        `(components, shares)`: a float32 array `(count, height, width, channels)` of components of
        length 1 with arbitrary signs, and the share of each component in the filters' variance.

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
    # Subtracting the mean reduces the rank by 1.
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
        A float32 array `(rows, columns, rows, columns)` from -1 to 1: `[row, column]` has the
        similarities between the patch in that row and column and all patches.

    Raises:
        ValueError: if the model has no position embeddings.

    Reference:
        Section 4.5, figure 7 (center) of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> position_similarity(model).shape
    (2, 2, 2, 2)
    """
    table, grid = position_table(model), stored_grid(model)
    # The rows of the class token and of registers come first.
    table = table[-grid[0] * grid[1] :]
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    # Divide a zero embedding by 1, so that its similarities are 0 and not NaN.
    table = table / np.where(lengths > 0, lengths, 1)
    return (table @ table.T).reshape(*grid, *grid).astype("float32")


def patch_colors(model, images, layer=None, batch_size=32):
    """Color the patches of images by the principal components of their tokens.

    The first principal component of all patches divides them into two sides. The side with fewer
    of the patches at the borders of the images is the foreground. The first three components of
    the foreground become red, green and blue, so patches with similar tokens have similar colors in
    all images.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            such arrays.
        layer: name of a layer that returns all tokens, such as `"block_9"`; by default the last
            one, usually `"encoder_norm"`.
        batch_size: number of images per step.

    Returns:
        `(colors, is_foreground)`: a float32 array `(batch, rows, columns, 3)` in [0, 1], in which
        the background is black, and a bool array `(batch, rows, columns)`. If tokens are not
        finite, there is only background.

    Raises:
        ValueError: if the model has no Transformer blocks, `layer` does not return all tokens, or
            `images` is not scaled to [-1, 1].

    Reference:
        Figure 1 of DINOv2 (arXiv 2304.07193), section 7.5.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3))
    >>> colors, is_foreground = patch_colors(model, images, layer="block_5")
    >>> colors.shape, is_foreground.shape
    ((3, 2, 2, 3), (3, 2, 2))
    """
    names = token_layer_names(model)
    layer = names[-1] if layer is None else layer
    check_choice("layer", layer, names)
    tokens = features(model, images, [layer], as_maps=True, batch_size=batch_size)[layer]
    if not np.isfinite(tokens).all():
        return np.zeros((*tokens.shape[:3], 3), "float32"), np.zeros(tokens.shape[:3], bool)
    (scores,) = _scores(tokens, 1)
    is_border = np.ones(scores.shape[1:], bool)
    is_border[1:-1, 1:-1] = False
    is_foreground = scores > 0
    if is_foreground[:, is_border].mean() > 0.5:
        is_foreground = scores < 0
    colors = np.zeros((*is_foreground.shape, 3), "float32")
    chosen = tokens[is_foreground]
    if len(chosen):
        channels = np.stack(_scores(chosen, 3), axis=-1)
        low, high = channels.min(axis=0), channels.max(axis=0)
        colors[is_foreground] = (channels - low) / np.where(high > low, high - low, 1)
    return colors, is_foreground


def _scores(tokens, count):
    """Return the scores of tokens `(..., width)` on their first principal components.

    The entry of a component with the greatest absolute value is positive.
    """
    rows = tokens.reshape(-1, tokens.shape[-1]).astype("float64")
    rows = rows - rows.mean(axis=0)
    _, components = np.linalg.eigh(rows.T @ rows)
    components = components[:, : -count - 1 : -1]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=0)[None], axis=0)
    scores = np.zeros((count, len(rows)))
    # Tokens may have fewer components.
    scores[: components.shape[1]] = (rows @ (components * np.sign(largest))).T
    return scores.reshape(count, *tokens.shape[:-1])


def token_norms(model, images, batch_size=32, verbose=0):
    """Return the L2 norm of each token after each block.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            such arrays.
        batch_size: number of images per step.
        verbose: as in `keras.Model.predict`.

    Returns:
        A float32 array `(blocks, batch, tokens)`. The class token and registers come first, then
        the patches, row by row.

    Raises:
        ValueError: if the model has no Transformer blocks, or `images` is not scaled to [-1, 1].

    Reference:
        Vision Transformers Need Registers (arXiv 2309.16588), figures 3 and 4.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> token_norms(model, np.zeros((2, 32, 32, 3))).shape
    (12, 2, 5)
    """
    check_images(images)
    blocks = [ops.cast(block.output, "float32") for block in find_blocks(model)]
    # `ops.norm` of Keras 3.15 fails in models on JAX.
    norms = [ops.sqrt(ops.sum(ops.square(tokens), axis=-1)) for tokens in blocks]
    network = keras.Model(model.input, ops.stack(norms, axis=1))
    found = network.predict(images, batch_size=batch_size, verbose=verbose)
    return np.moveaxis(found, 1, 0)


def find_outliers(model, norms):
    """Return which patches have high norms: more than twice the median of their image and block.

    Large models without registers store global information in patches that have little of their
    own. Attention maps show these patches as noise.

    Args:
        model: the model.
        norms: float array `(blocks, batch, tokens)` from `token_norms`.

    Returns:
        A bool array `(blocks, batch, patches)`.

    Reference:
        Vision Transformers Need Registers (arXiv 2309.16588), section 2. The paper chose a
        threshold for each model by eye.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> find_outliers(model, np.array([[[7.0, 1.0, 1.0, 1.0, 3.0]]]))
    array([[[False, False, False,  True]]])
    """
    patches = norms[..., num_prefix_tokens(model) :]
    return patches > 2 * np.median(patches, axis=-1, keepdims=True)
