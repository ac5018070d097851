"""Shapes inside a model, from its table row alone."""

from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.models.options import token_grid_of
from keras_vit.models.resnet import downsampling
from keras_vit.models.variants import ResNetVariant

POOLINGS = ("token", "gap", "map")


def count_patches(variant, image_size):
    """Patches of a square image, which they must tile."""
    rows, columns = token_grid_of({**variant.architecture, "image_size": (image_size,) * 2})
    return rows * columns


def check_sizes(pooling, **sizes):
    """Raise `ValueError` for an unknown pooling, or a size that is not positive.

    Args:
        pooling: must be `"token"`, `"gap"` or `"map"`.
        **sizes: integers; `num_classes` may be 0.
    """
    check_choice("pooling", pooling, POOLINGS)
    for name, value in sizes.items():
        check_integer(name, value, minimum=0 if name == "num_classes" else 1)


def patch_channels(variant):
    """Channels of what is cut into patches: the image, or the maps of a hybrid's ResNet."""
    return 3 if variant.resnet_stages is None else out_channels(**resnet_of(variant))


def resnet_of(variant):
    """Stages and width of a row's ResNet."""
    if isinstance(variant, ResNetVariant):
        return {"stages": variant.stages, "width": variant.width}
    architecture = variant.architecture
    return {"stages": architecture["resnet_stages"], "width": architecture["resnet_width"]}


def out_channels(stages, width):
    """Channels behind the last stage."""
    return 4 * width * 2 ** (len(stages) - 1) if stages else width


def convolutions(stages, width):
    """Of each convolution of a ResNet: kernel size, channels in and out, strides in and out."""
    yield 7, 3, width, 1, 2
    channels, before = width, 4
    for stage, units in enumerate(stages):
        filters, stride = width * 2**stage, downsampling(stages[: stage + 1])
        for unit in range(units):
            yield 1, channels, filters, before, before
            yield 3, filters, filters, before, stride
            yield 1, filters, 4 * filters, stride, stride
            if unit == 0:
                yield 1, channels, 4 * filters, before, stride
            channels, before = 4 * filters, stride
