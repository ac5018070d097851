"""Parameters and floating-point operations of a model, from its table row alone."""

import math

import numpy as np

from keras_vit.evaluation.geometry import (
    attended_lengths,
    convolutions,
    count_patches,
    out_channels,
    patch_grid,
    pooled_width,
    with_ablations,
)
from keras_vit.models.options import CLASS_TOKEN_POOLINGS, Options, is_resnet


def count_parameters(
    variant: Options,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] = 224,
    pooling: str | None = "token",
    position_embedding: str = "learned",
    position_placement: str = "stem",
    axial: bool = False,
) -> int:
    """Count the parameters of a model with a linear head.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.
        pooling: as in `vision_transformer`, but not `None`; a ResNet always has `"gap"`.
        position_embedding: as in `vision_transformer`; a ResNet has none.
        position_placement: as in `vision_transformer`.
        axial: whether the blocks are axial; a ResNet has none.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image, or an argument is out of range.

    Example:
    >>> count_parameters(keras_vit.list_variants()[4])
    86567656
    """
    variant = with_ablations(
        variant,
        pooling,
        position_embedding=position_embedding,
        axial=axial,
        position_placement=position_placement,
    )
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
    class_token = width if pooling in CLASS_TOKEN_POOLINGS else 0
    embedding = math.prod(variant.patch_size) * channels * width + width + class_token
    positions = _positions(variant, image_size, pooling, position_embedding, position_placement)
    attention = 4 * (width * width + width)
    mlp = width * hidden + hidden + hidden * width + width
    gate = variant.gated_mlp * (width * hidden + hidden)
    block = (attention + mlp + gate + 2 * 2 * width) * (2 if axial else 1)
    # Attention pooling has a probe, one norm and the layers of a block.
    pool = width + attention + 2 * width + mlp if pooling == "map" else 0
    head = num_classes * (pooled_width(variant, pooling) + 1)
    return resnet + embedding + positions + variant.depth * block + 2 * width + pool + head


def _positions(variant, image_size, pooling, position_embedding, position_placement):
    """Count the numbers of all position embeddings."""
    width, (rows, columns) = variant.embedding_dim, patch_grid(variant, image_size)
    if position_embedding == "relative":
        # Heads share an embedding per offset.
        return variant.depth * (2 * rows * columns - 1) * (width // variant.num_heads)
    tokens = rows * columns + (pooling in CLASS_TOKEN_POOLINGS)
    table = {"learned": tokens * width, "learned2d": (rows + columns) * (width // 2)}
    tables = variant.depth if position_placement == "every_layer" else 1
    return tables * table.get(position_embedding, 0)


def count_flops(
    variant: Options,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] = 224,
    pooling: str | None = "token",
    with_padding: bool = True,
    position_embedding: str = "learned",
    axial: bool = False,
) -> int:
    """Count the floating-point operations of one image's forward pass.

    A multiplication and an addition are two operations. Only matrix products and convolutions are
    counted; the rest is 0.4 % of ViT-B/16 and 2 % of BiT-R50x1.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.
        pooling: as in `vision_transformer`, but not `None`; a ResNet always has `"gap"`.
        with_padding: whether to count products with the zeros around a map, 4 % of a ResNet's.
            TensorFlow's profiler counts them, XLA does not.
        position_embedding: as in `count_parameters`. Where they are added makes no difference.
        axial: as in `count_parameters`.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image, or an argument is out of range.

    Example:
    >>> round(count_flops(keras_vit.list_variants()[4]) / 1e9, 1)
    35.1
    """
    variant = with_ablations(variant, pooling, position_embedding=position_embedding, axial=axial)
    maps, channels = _multiplications(variant, image_size, with_padding), out_channels(variant)
    if is_resnet(variant):
        return 2 * (maps + channels * num_classes)
    width, hidden = variant.embedding_dim, variant.mlp_dim
    patches = count_patches(variant, image_size)
    tokens = patches + (pooling in CLASS_TOKEN_POOLINGS)
    embedding = patches * math.prod(variant.patch_size) * channels * width
    # The projections of attention, its two products, and the MLP of two or, gated, three products.
    block = sum(
        tokens * width * (4 * width + 2 * length + (2 + variant.gated_mlp) * hidden)
        for length in attended_lengths(variant, image_size, pooling, axial)
    )
    if position_embedding == "relative":
        # Each query by the embeddings of all offsets, and a row of zeros.
        block += patches * width * 2 * patches
    # Attention pooling has one probe: its attention to the patches, and an MLP.
    probe = 2 * (1 + patches) * width * width + 2 * patches * width + 2 * width * hidden
    pool = probe if pooling == "map" else 0
    return 2 * (
        maps
        + embedding
        + variant.depth * block
        + pool
        + pooled_width(variant, pooling) * num_classes
    )


def count_training_exaflops(
    variant,
    num_examples,
    epochs,
    num_classes=1000,
    image_size=224,
    pooling="token",
    position_embedding="learned",
    axial=False,
):
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
    options = {"position_embedding": position_embedding, "axial": axial}
    forward = count_flops(variant, num_classes, image_size, pooling, with_padding=False, **options)
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
