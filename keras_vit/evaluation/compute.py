"""What a model costs, from its table row alone."""

from keras_vit.models.resnet import downsampling
from keras_vit.models.variants import ResNetVariant
from keras_vit.models.vit import total_stride


def count_parameters(variant, num_classes=1000, image_size=224, pooling="token"):
    """Parameters of a model with a linear head.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.
        pooling: `"token"` or `"gap"`; a ResNet has always the latter.

    Returns:
        An integer.

    Example:
    >>> count_parameters(keras_vit.list_variants()[4])
    86567656
    """
    if isinstance(variant, ResNetVariant):
        return _count_resnet(variant, num_classes)
    width, hidden = variant.embedding_dim, variant.mlp_dim
    class_token = pooling == "token"
    patches = _count_patches(variant, image_size)
    embedding = variant.patch_size**2 * _patch_channels(variant) * width + width
    positions = (patches + class_token) * width + class_token * width
    attention = 4 * (width * width + width)
    mlp = width * hidden + hidden + hidden * width + width
    block = attention + mlp + 2 * 2 * width
    head = num_classes * (width + 1)
    resnet = 0
    if variant.resnet_stages is not None:
        convolutions = list(_convolutions(**_resnet_of(variant)))
        # A norm follows each convolution.
        resnet = sum(size**2 * i * o + 2 * o for size, i, o, _ in convolutions)
    return resnet + embedding + positions + variant.depth * block + 2 * width + head


def count_flops(variant, num_classes=1000, image_size=224):
    """Floating-point operations of one image's forward pass, with a class token.

    A multiplication and an addition are two operations. Matrix products and convolutions alone are
    counted; all else is below 1 %.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        num_classes: classes of the head; 0 for none.
        image_size: side of the square image, in pixels.

    Returns:
        An integer.

    Example:
    >>> round(count_flops(keras_vit.list_variants()[4]) / 1e9, 1)
    35.1
    """
    if isinstance(variant, ResNetVariant):
        maps = _multiplications(image_size, **_resnet_of(variant))
        return 2 * (maps + _out_channels(**_resnet_of(variant)) * num_classes)
    maps = 0
    if variant.resnet_stages is not None:
        maps = _multiplications(image_size, **_resnet_of(variant))
    width, hidden = variant.embedding_dim, variant.mlp_dim
    patches = _count_patches(variant, image_size)
    tokens = patches + 1
    embedding = patches * variant.patch_size**2 * _patch_channels(variant) * width
    projections = 4 * tokens * width * width
    attention = 2 * tokens * tokens * width
    mlp = 2 * tokens * width * hidden
    block = projections + attention + mlp
    return 2 * (maps + embedding + variant.depth * block + width * num_classes)


def _count_patches(variant, image_size):
    return (image_size // total_stride(variant.patch_size, variant.resnet_stages)[0]) ** 2


def _patch_channels(variant):
    return 3 if variant.resnet_stages is None else _out_channels(**_resnet_of(variant))


def _resnet_of(variant):
    """Stages and width of a row's ResNet."""
    if isinstance(variant, ResNetVariant):
        return {"stages": variant.stages, "width": variant.width}
    architecture = variant.architecture
    return {"stages": architecture["resnet_stages"], "width": architecture["resnet_width"]}


def _out_channels(stages, width):
    return 4 * width * 2 ** (len(stages) - 1) if stages else width


def _count_resnet(variant, num_classes):
    channels = _out_channels(**_resnet_of(variant))
    kernels = sum(s**2 * i * o for s, i, o, _ in _convolutions(**_resnet_of(variant)))
    # A norm precedes each convolution but the root's and the projections', and the head.
    norms = channels
    for stage, units in enumerate(variant.stages):
        filters = variant.width * 2**stage
        first = variant.width if stage == 0 else 2 * filters
        norms += first + (units - 1) * 4 * filters + units * 2 * filters
    return kernels + 2 * norms + num_classes * (channels + 1)


def _multiplications(image_size, stages, width):
    """Multiplications of a ResNet's convolutions; a map's side is rounded up at each stride."""
    return sum(
        size**2 * i * o * (-(-image_size // stride)) ** 2
        for size, i, o, stride in _convolutions(stages, width)
    )


def _convolutions(stages, width):
    """Kernel size, channels in and out and the output's stride of each convolution of a ResNet."""
    yield 7, 3, width, 2
    channels, before = width, 4
    for stage, units in enumerate(stages):
        filters, stride = width * 2**stage, downsampling(stages[: stage + 1])
        for unit in range(units):
            yield 1, channels, filters, before
            yield 3, filters, filters, stride
            yield 1, filters, 4 * filters, stride
            if unit == 0:
                yield 1, channels, 4 * filters, stride
            channels, before = 4 * filters, stride
