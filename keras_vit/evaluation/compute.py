"""Parameters and floating-point operations of a model, from its table row alone."""

import math

import numpy as np

from keras_vit.evaluation.geometry import (
    attended_lengths,
    convolutions,
    count_patches,
    count_tokens,
    out_channels,
    patch_grid,
    pooled_width,
)
from keras_vit.models.options import Options, is_resnet


def count_parameters(
    variant: Options, num_classes: int = 1000, image_size: int | tuple[int, int] = 224
) -> int:
    """Count the parameters of a model with a linear head.

    Args:
        variant: a row of `keras_vit.list_variants()`, also with another `pooling` or
            `position_embedding`, `position_placement` or `axial`. Everything else is counted as in
            the paper's models.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> count_parameters(keras_vit.list_variants()[4])
    86567656
    """
    maps = list(convolutions(variant))
    kernels = sum(size**2 * i * o for size, i, o, *_ in maps)
    channels = out_channels(variant)
    if is_resnet(variant):
        # A norm precedes the head and each convolution but the root and the projections.
        norms = channels + sum(i for _, i, *_, is_projection in maps[1:] if not is_projection)
        return kernels + 2 * norms + num_classes * (channels + 1)
    # A norm follows each convolution of a hybrid.
    resnet = kernels + sum(2 * o for _, _, o, *_ in maps)
    width, hidden = variant.embedding_dim, variant.mlp_dim
    embedding = (math.prod(variant.patch_size) * channels + 1 + variant.num_prefix_tokens) * width
    positions = _positions(variant, image_size)
    attention = 4 * (width * width + width)
    mlp = width * hidden + hidden + hidden * width + width
    gate = variant.gated_mlp * (width * hidden + hidden)
    block = (attention + mlp + gate + 2 * 2 * width) * (2 if variant.axial else 1)
    # Attention pooling has a probe, one norm and the layers of a block.
    pool = width + attention + 2 * width + mlp if variant.pooling == "map" else 0
    head = num_classes * (pooled_width(variant) + 1)
    return resnet + embedding + positions + variant.depth * block + 2 * width + pool + head


def _positions(variant, image_size):
    """Count the numbers of all position embeddings."""
    width, (rows, columns) = variant.embedding_dim, patch_grid(variant, image_size)
    if variant.position_embedding == "relative":
        # Heads share an embedding per offset.
        return variant.depth * (2 * rows * columns - 1) * (width // variant.num_heads)
    tokens = rows * columns + variant.has_class_token
    table = {"learned": tokens * width, "learned2d": (rows + columns) * (width // 2)}
    tables = variant.depth if variant.position_placement == "every_layer" else 1
    return tables * table.get(variant.position_embedding, 0)


def count_flops(
    variant: Options,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] = 224,
    with_padding: bool = True,
) -> int:
    """Count the floating-point operations of one image's forward pass.

    A multiplication and an addition are two operations. Only matrix products and convolutions are
    counted; the rest is 0.4 % of ViT-B/16 and 2 % of BiT-R50x1.

    Args:
        variant: as in `count_parameters`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.
        with_padding: whether to count products with the zeros around a map, 4 % of a ResNet's.
            TensorFlow's profiler counts them, XLA does not.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> round(count_flops(keras_vit.list_variants()[4]) / 1e9, 1)
    35.1
    """
    maps, channels = _multiplications(variant, image_size, with_padding), out_channels(variant)
    if is_resnet(variant):
        return 2 * (maps + channels * num_classes)
    width, hidden = variant.embedding_dim, variant.mlp_dim
    patches = count_patches(variant, image_size)
    tokens = count_tokens(variant, image_size)
    embedding = patches * math.prod(variant.patch_size) * channels * width
    # The projections of attention, its two products, and the MLP of two or, gated, three products.
    block = sum(
        tokens * width * (4 * width + 2 * length + (2 + variant.gated_mlp) * hidden)
        for length in attended_lengths(variant, image_size)
    )
    if variant.position_embedding == "relative":
        # Each query by the embeddings of all offsets, and a row of zeros.
        block += patches * width * 2 * patches
    # Attention pooling has one probe: its attention to the patches, and an MLP.
    probe = 2 * (1 + patches) * width * width + 2 * patches * width + 2 * width * hidden
    pool = probe if variant.pooling == "map" else 0
    head = pooled_width(variant) * num_classes
    return 2 * (maps + embedding + variant.depth * block + pool + head)


def count_training_exaflops(variant, num_examples, epochs, num_classes=1000, image_size=224):
    """Count the compute of a training run, in exaFLOPs (10^18 floating-point operations).

    The backward pass has two products for each one of the forward pass, by the inputs and by the
    weights, so that a step costs three forward passes. Products with the zeros around a map are not
    counted, as the paper's figures are without them: section 4.4 and table 6 (arXiv 2010.11929).
    """
    if num_examples < 0 or epochs < 0:
        raise ValueError(
            "`num_examples` and `epochs` must not be negative. "
            f"Received: num_examples={num_examples}, epochs={epochs}"
        )
    forward = count_flops(variant, num_classes, image_size, with_padding=False)
    return 3 * forward * num_examples * epochs / 1e18


def _multiplications(variant, image_size, with_padding):
    """Count the multiplications of a ResNet's convolutions; strides round a map's side up."""
    total = 0
    for size, channels, filters, before, stride, _ in convolutions(variant):
        sides = -(-image_size // before), -(-image_size // stride)
        by_side = size * sides[1] if with_padding else products_of(size, *sides, stride // before)
        total += by_side**2 * channels * filters
    return total


def products_of(size, side, side_out, stride):
    """Count the products of a kernel along one side of a map, without those with the padding."""
    places = np.arange(side_out)[:, None] * stride + np.arange(size) - (size - 1) // 2
    return int(((places >= 0) & (places < side)).sum())
