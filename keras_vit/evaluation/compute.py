"""What a model costs, from its table row alone."""

import numpy as np

from keras_vit.evaluation.geometry import (
    check_sizes,
    convolutions,
    count_patches,
    out_channels,
    patch_channels,
    resnet_of,
)
from keras_vit.models.variants import ResNetVariant


def count_parameters(variant, num_classes=1000, image_size=224, pooling="token"):
    """Parameters of a model with a linear head.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.
        pooling: `"token"`, `"gap"` or `"map"`; a ResNet has always the second.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image, or an argument is out of range.

    Example:
    >>> count_parameters(keras_vit.list_variants()[4])
    86567656
    """
    check_sizes(pooling, num_classes=num_classes, image_size=image_size)
    if isinstance(variant, ResNetVariant):
        return _count_resnet(variant, num_classes)
    width, hidden = variant.embedding_dim, variant.mlp_dim
    class_token = pooling == "token"
    patches = count_patches(variant, image_size)
    embedding = variant.patch_size**2 * patch_channels(variant) * width + width
    positions = (patches + class_token) * width + class_token * width
    attention = 4 * (width * width + width)
    mlp = width * hidden + hidden + hidden * width + width
    block = attention + mlp + 2 * 2 * width
    # Attention pooling has a probe, one norm and the layers of a block.
    pool = width + attention + 2 * width + mlp if pooling == "map" else 0
    head = num_classes * (width + 1)
    resnet = 0
    if variant.resnet_stages is not None:
        # A norm follows each convolution.
        maps = convolutions(**resnet_of(variant))
        resnet = sum(size**2 * i * o + 2 * o for size, i, o, *_ in maps)
    return resnet + embedding + positions + variant.depth * block + 2 * width + pool + head


def count_flops(variant, num_classes=1000, image_size=224, pooling="token", with_padding=True):
    """Floating-point operations of one image's forward pass.

    A multiplication and an addition are two operations. Matrix products and convolutions alone are
    counted; all else is 0.4 % of ViT-B/16 and 2 % of BiT-R50x1.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.
        pooling: `"token"`, `"gap"` or `"map"`; a ResNet has always the second.
        with_padding: whether products with the zeros around a map are counted, as TensorFlow's
            profiler does and XLA does not; 4 % of a ResNet's.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image, or an argument is out of range.

    Example:
    >>> round(count_flops(keras_vit.list_variants()[4]) / 1e9, 1)
    35.1
    """
    check_sizes(pooling, num_classes=num_classes, image_size=image_size)
    if isinstance(variant, ResNetVariant):
        maps = _multiplications(image_size, with_padding, **resnet_of(variant))
        return 2 * (maps + out_channels(**resnet_of(variant)) * num_classes)
    maps = 0
    if variant.resnet_stages is not None:
        maps = _multiplications(image_size, with_padding, **resnet_of(variant))
    width, hidden = variant.embedding_dim, variant.mlp_dim
    patches = count_patches(variant, image_size)
    tokens = patches + (pooling == "token")
    embedding = patches * variant.patch_size**2 * patch_channels(variant) * width
    projections = 4 * tokens * width * width
    attention = 2 * tokens * tokens * width
    mlp = 2 * tokens * width * hidden
    block = projections + attention + mlp
    pool = 0
    if pooling == "map":
        # Of one probe: its attention to the patches, and an MLP.
        pool = 2 * (1 + patches) * width * width + 2 * patches * width + 2 * width * hidden
    return 2 * (maps + embedding + variant.depth * block + pool + width * num_classes)


def count_training_exaflops(
    variant, num_examples, epochs, num_classes=1000, image_size=224, pooling="token"
):
    """Compute of a training run, in exaFLOPs (10^18 floating-point operations).

    The backward pass takes two products for each one of the forward pass, by the inputs and by the
    weights, so that a step costs three forward passes. Products with the zeros around a map are not
    counted: so the paper's figures come out.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_examples: images in an epoch.
        epochs: of the run.
        num_classes: classes of the head.
        image_size: side of the square image, in pixels.
        pooling: as in `count_flops`.

    Returns:
        A float.

    Raises:
        ValueError: if the patches do not tile the image, or an argument is out of range.

    Reference:
        Section 4.4 and table 6 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> variant = keras_vit.list_variants()[4]
    >>> round(count_training_exaflops(variant, 303e6, epochs=7, num_classes=18_000))
    224
    """
    if num_examples < 0 or epochs < 0:
        raise ValueError(
            "`num_examples` and `epochs` must not be negative. "
            f"Received: num_examples={num_examples}, epochs={epochs}"
        )
    forward = count_flops(variant, num_classes, image_size, pooling, with_padding=False)
    return 3 * forward * num_examples * epochs / 1e18


def _count_resnet(variant, num_classes):
    channels = out_channels(**resnet_of(variant))
    kernels = sum(s**2 * i * o for s, i, o, *_ in convolutions(**resnet_of(variant)))
    # A norm precedes each convolution but the root's and the projections', and the head.
    norms = channels
    for stage, units in enumerate(variant.stages):
        filters = variant.width * 2**stage
        first = variant.width if stage == 0 else 2 * filters
        norms += first + (units - 1) * 4 * filters + units * 2 * filters
    return kernels + 2 * norms + num_classes * (channels + 1)


def _multiplications(image_size, with_padding, stages, width):
    """Multiplications of a ResNet's convolutions; a map's side is rounded up at each stride."""
    total = 0
    for size, channels, filters, before, stride in convolutions(stages, width):
        sides = -(-image_size // before), -(-image_size // stride)
        by_side = size * sides[1] if with_padding else products_of(size, *sides, stride // before)
        total += by_side**2 * channels * filters
    return total


def products_of(size, side, side_out, stride):
    """Products of a kernel along one side of a map, without those with the zeros around it."""
    places = np.arange(side_out)[:, None] * stride + np.arange(size) - (size - 1) // 2
    return int(((places >= 0) & (places < side)).sum())
