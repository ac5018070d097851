"""The ResNets of the paper as Functional Keras models: BiT's, and the one inside the hybrids."""

import keras

from keras_vit.core.arguments import as_pair, check_choice, check_integer, is_integer
from keras_vit.layers.convolution import (
    BIT,
    HYBRID,
    check_width,
    group_norm,
    standardized_conv,
)
from keras_vit.layers.mlp import as_activation
from keras_vit.layers.resnet import BottleneckUnit, PreActivationBottleneckUnit
from keras_vit.models.head import classification_head


def resnet(
    stages,
    width=64,
    num_classes=1000,
    image_size=224,
    image_channels=3,
    classifier_activation=None,
    preactivation=True,
    name="resnet",
    dtype=None,
):
    """Builds a ResNet with GroupNorm and weight standardisation, of any size.

    The model takes images `(batch, height, width, channels)`, float, in [-1, 1] (see
    `keras_vit.preprocess`), and returns logits `(batch, num_classes)` in float32. Its layers are
    named `root_conv`, `root_pool`, `stage_1_unit_1` ..., `norm`, `pooling` and `head`.

    Args:
        stages: number of residual units of each stage, such as `(3, 4, 6, 3)` for a ResNet-50.
        width: channels behind the first convolution, a multiple of 32; 64 times BiT's width factor.
        num_classes: width of the head; 0 for no head, the model then returns the representation.
        image_size: int or `(height, width)`.
        image_channels: channels of an image.
        classifier_activation: activation of the head; `None` returns logits.
        preactivation: whether this is BiT, a ResNet-v2; or the ResNet-v1 of the hybrids, which
            big_vision has as `bit.py`. They differ in padding and epsilons too.
        name: name of the model.
        dtype: dtype or policy of the layers, such as `"mixed_bfloat16"`; `None` for the global
            policy. Standardisation, GroupNorm statistics and logits are float32 under each.

    Returns:
        A Functional `keras.Model`.

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
    images = keras.Input((*as_pair(image_size, "image_size"), image_channels), name="images")
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
    return keras.Model(images, outputs, name=name)


def hybrid_maps(images, stages, width, dtype):
    """Feature maps of the hybrids' ResNet, `ResNetStage` and the root in `vit_jax/models_vit.py`.

    Each stage but the first halves the maps, whose side is a fourth of the image's to begin with.
    """
    maps = standardized_conv(HYBRID, width, 7, 2, dtype, "root_conv")(images)
    maps = group_norm(HYBRID, dtype, "root_norm")(maps)
    maps = keras.layers.ReLU(dtype=dtype, name="root_relu")(maps)
    maps = _max_pool("same", dtype)(maps)
    return _units(BottleneckUnit, maps, stages, width, dtype)


def downsampling(stages):
    """Pixels of the image for each side of a feature map behind these stages."""
    return 4 * 2 ** max(len(stages) - 1, 0)


def check_stages(argument, stages, minimum=1):
    """The stages as a tuple, checked to be at least so many positive integers."""
    is_tuple = isinstance(stages, (tuple, list)) and len(stages) >= minimum
    if not is_tuple or not all(is_integer(units) and units > 0 for units in stages):
        raise ValueError(
            f"`{argument}` must be a tuple of the number of units in each stage, at least 1. "
            f"Received: {argument}={stages!r}"
        )
    return tuple(int(units) for units in stages)


def _bit_root(images, width, dtype):
    """No norm and no ReLU: values below zero meet the zeros around the maps in the pooling.

    big_vision's `bit_paper.py` pads with minus infinity there, and gives other numbers.
    """
    maps = standardized_conv(BIT, width, 7, 2, dtype, "root_conv")(images)
    maps = keras.layers.ZeroPadding2D(
        1, data_format="channels_last", dtype=dtype, name="root_zeros"
    )(maps)
    return _max_pool("valid", dtype)(maps)


def _max_pool(padding, dtype):
    return keras.layers.MaxPooling2D(
        3, 2, padding, data_format="channels_last", dtype=dtype, name="root_pool"
    )


def _units(unit, maps, stages, width, dtype):
    for stage, num_units in enumerate(stages, start=1):
        for index in range(1, num_units + 1):
            strides = 2 if stage > 1 and index == 1 else 1
            name = f"stage_{stage}_unit_{index}"
            maps = unit(width * 2 ** (stage - 1), strides, dtype=dtype, name=name)(maps)
    return maps
