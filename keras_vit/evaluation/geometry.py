"""Shapes inside a model, from its table row alone."""

from keras_vit.models.options import is_resnet, resnet_stride


def patch_grid(variant, image_size):
    """Return the rows and columns of the patches that tile a square image."""
    return variant.replace(image_size=image_size).grid


def count_patches(variant, image_size):
    """Return the number of patches that tile a square image."""
    rows, columns = patch_grid(variant, image_size)
    return rows * columns


def count_tokens(variant, image_size):
    """Return the number of patches and of the tokens before them."""
    return count_patches(variant, image_size) + variant.num_prefix_tokens


def attended_lengths(variant, image_size):
    """Return how many tokens a token attends to: in the one half of a block, or in both halves."""
    if variant.axial:
        return patch_grid(variant, image_size)[::-1]
    return (count_tokens(variant, image_size),)


def pooled_width(variant):
    """Return the size of what is pooled: with `token_gap` two vectors side by side."""
    return variant.embedding_dim * (2 if variant.pooling == "token_gap" else 1)


def resnet_of(variant):
    """Return the stages and the width of a row's ResNet; a plain ViT's stages are `None`."""
    if is_resnet(variant):
        return variant.stages, variant.width
    return variant.resnet_stages, variant.resnet_width


def out_channels(variant):
    """Return the channels after the last stage; 3, those of the image, for a plain ViT."""
    stages, width = resnet_of(variant)
    if stages is None:
        return 3
    return 4 * width * 2 ** (len(stages) - 1) if stages else width


def convolutions(variant):
    """Yield the convolutions of a row's ResNet, the root first; none for a plain ViT.

    Each is `(kernel size, channels in, channels out, stride in, stride out, is_projection)`. A
    projection is the last of its unit; the strides are those of its maps relative to the image.
    """
    stages, width = resnet_of(variant)
    if stages is None:
        return
    yield 7, 3, width, 1, 2, False
    channels, before = width, 4
    for stage, units in enumerate(stages):
        filters, stride = width * 2**stage, resnet_stride(stages[: stage + 1])
        for unit in range(units):
            yield 1, channels, filters, before, before, False
            yield 3, filters, filters, before, stride, False
            yield 1, filters, 4 * filters, stride, stride, False
            if unit == 0:
                yield 1, channels, 4 * filters, before, stride, True
            channels, before = 4 * filters, stride
