"""The ResNets of the paper as Functional Keras models: BiT, and the one inside the hybrids."""

from collections.abc import Sequence

import keras

from keras_vit.core.arguments import as_pair, check_choice, check_integer, is_integer
from keras_vit.layers.activations import as_activation
from keras_vit.layers.convolution import (
    BIT,
    HYBRID,
    MaxPool,
    check_width,
    group_norm,
    standardized_conv,
)
from keras_vit.layers.resnet import BottleneckUnit, PreActivationBottleneckUnit
from keras_vit.models.base import ImageModel, carries_options
from keras_vit.models.stem_and_head import activation_name, classification_head


@carries_options
def resnet(
    stages: Sequence[int],
    width: int = 64,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] | None = 224,
    image_channels: int = 3,
    classifier_activation: str | None = None,
    preactivation: bool = True,
    name: str = "resnet",
    dtype: str | None = None,
) -> ImageModel:
    """Build a ResNet with GroupNorm and weight standardization, of any size.

    The model takes images `(batch, height, width, channels)`, float, in [-1, 1] (see
    `keras_vit.preprocess`), and returns logits `(batch, num_classes)` in float32. Its layers are
    named `root_conv`, `root_pool`, `stage_1_unit_1` ..., `norm`, `pooling` and `head`.

    Args:
        stages: number of residual units of each stage, such as `(3, 4, 6, 3)` for a ResNet-50.
        width: channels of the first convolution, a multiple of 32; 64 times BiT's width factor.
        num_classes: width of the head; 0 for no head: the model returns the representation.
        image_size: int or `(height, width)`; `None` for any size.
        image_channels: channels of an image.
        classifier_activation: activation of the head; `None` returns logits.
        preactivation: `True` for BiT, a ResNet-v2; `False` for the ResNet-v1 of the hybrids, which
            is `bit.py` in big_vision. They also differ in padding and epsilons.
        name: name of the model.
        dtype: dtype or policy of the layers, such as `"mixed_bfloat16"`; `None` for the global
            policy. Standardization, GroupNorm statistics and logits are float32 under every policy.

    Returns:
        A Functional `keras.Model` that carries its options, see `keras_vit.models.ImageModel`.

    Raises:
        ValueError: if `stages` are not positive integers, `width` is no multiple of 32, or a size
            is not positive.

    Reference:
        "Big Transfer (BiT): General Visual Representation Learning", arXiv 1912.11370.

    Example:
    >>> model = keras_vit.resnet(stages=(1, 1), width=32, num_classes=10, image_size=(40, 50))
    >>> model.output.shape
    (None, 10)
    """
    stages = check_stages("stages", stages)
    width = check_width("width", width)
    num_classes = check_integer("num_classes", num_classes, minimum=0)
    image_channels = check_integer("image_channels", image_channels, minimum=1)
    as_activation(classifier_activation, "classifier_activation")
    check_choice("preactivation", preactivation, (True, False))
    image_size = None if image_size is None else as_pair(image_size, "image_size")
    normalized = {
        "stages": stages,
        "image_size": image_size,
        "classifier_activation": activation_name(classifier_activation) if num_classes else None,
        "preactivation": bool(preactivation),
    }
    images = keras.Input((*(image_size or (None, None)), image_channels), name="images")
    if preactivation:
        maps = _bit_root(images, width, dtype)
        maps = _units(PreActivationBottleneckUnit, maps, stages, width, dtype)
        maps = group_norm(BIT, dtype, "norm")(maps)
        maps = keras.layers.ReLU(dtype=dtype, name="relu")(maps)
    else:
        maps = hybrid_maps(images, stages, width, dtype)
    outputs = keras.layers.GlobalAveragePooling2D(
        data_format="channels_last", dtype=dtype, name="pooling"
    )(maps)
    outputs = classification_head(
        outputs, num_classes, classifier_activation=classifier_activation, dtype=dtype
    )
    return ImageModel(images, outputs, name=name), normalized


def hybrid_maps(images, stages, width, dtype):
    """Return the feature maps of the hybrids' ResNet (`ResNetStage` in `vit_jax/models_vit.py`).

    The root divides the height and the width by 4, and each stage but the first by 2.
    """
    maps = standardized_conv(HYBRID, width, 7, 2, dtype, "root_conv")(images)
    maps = group_norm(HYBRID, dtype, "root_norm")(maps)
    maps = keras.layers.ReLU(dtype=dtype, name="root_relu")(maps)
    maps = _max_pool("same", dtype)(maps)
    return _units(BottleneckUnit, maps, stages, width, dtype)


def check_hybrid(stages, width):
    """Check the options of a hybrid's ResNet, `stages` are `None` without one; return them."""
    if stages is not None:
        stages = check_stages("resnet_stages", stages, minimum=0)
        return stages, check_width("resnet_width", width)
    if width != 64:
        raise ValueError(f"`resnet_width` needs `resnet_stages`. Received: resnet_width={width!r}")
    return stages, width


def check_stages(argument, stages, minimum=1):
    """Check that stages are at least `minimum` positive integers; return them as a tuple."""
    is_tuple = isinstance(stages, (tuple, list)) and len(stages) >= minimum
    if not is_tuple or not all(is_integer(units) and units > 0 for units in stages):
        raise ValueError(
            f"`{argument}` must be a tuple of the number of units in each stage, at least 1. "
            f"Received: {argument}={stages!r}"
        )
    return tuple(int(units) for units in stages)


def _bit_root(images, width, dtype):
    """Return the maps after BiT's root, which has no norm and no ReLU.

    The maps are padded with zeros for the pooling, although they have negative values. big_vision's
    `bit_paper.py` pads with minus infinity, and gives other numbers.
    """
    maps = standardized_conv(BIT, width, 7, 2, dtype, "root_conv")(images)
    maps = keras.layers.ZeroPadding2D(
        1, data_format="channels_last", dtype=dtype, name="root_zeros"
    )(maps)
    return _max_pool("valid", dtype)(maps)


def _max_pool(padding, dtype):
    return MaxPool(3, 2, padding, dtype=dtype, name="root_pool")


def _units(unit, maps, stages, width, dtype):
    for stage, num_units in enumerate(stages, start=1):
        for index in range(1, num_units + 1):
            strides = 2 if stage > 1 and index == 1 else 1
            name = f"stage_{stage}_unit_{index}"
            maps = unit(width * 2 ** (stage - 1), strides, dtype=dtype, name=name)(maps)
    return maps
