"""The ResNets of the paper as Functional Keras models: BiT, and the ResNet of the hybrids."""

import inspect
from typing import Any

import keras

from keras_vit.core.image_spec import ImageSpec
from keras_vit.layers import BottleneckUnit, PreActivationBottleneckUnit
from keras_vit.layers.bottleneck import BIT, HYBRID, MaxPool, group_norm, standardized_conv
from keras_vit.models.image_model import ImageModel, follow_dtype, zero_head
from keras_vit.models.options import ResNetOptions, as_options


def resnet(*options: Any, **fields: Any) -> ImageModel:
    """Build a ResNet of any depth and width, with GroupNorm and weight standardization.

    The model takes images `(batch, height, width, channels)`, float, in [-1, 1] (see
    `keras_vit.preprocess`), and returns logits `(batch, num_classes)` in float32. Its layers are
    named `root_conv`, `root_pool`, `stage_1_unit_1` ..., `norm`, `pooling` and `head`.

    Args:
        *options: a `keras_vit.models.ResNetOptions`, or values for the first of its fields.
        **fields: values for other fields. They replace the values in a given `ResNetOptions`.

    Returns:
        A Functional `keras.Model` that carries its options, see `keras_vit.models.ImageModel`.

    Raises:
        ValueError: if the width is not a multiple of 32, or an option is unknown.

    Reference:
        "Big Transfer (BiT): General Visual Representation Learning", arXiv 1912.11370.

    Example:
    >>> model = keras_vit.resnet(stages=(1, 1), width=32, num_classes=10, image_size=(40, 50))
    >>> model.output.shape
    (None, 10)
    """
    o = as_options(ResNetOptions, options, fields)
    images = keras.Input((*(o.image_size or (None, None)), o.image_channels), name="images")
    if o.preactivation:
        maps = _bit_root(images, o.width, o.dtype)
        maps = _units(PreActivationBottleneckUnit, maps, o.stages, o.width, o.dtype)
        maps = group_norm(BIT, dtype=o.dtype, name="norm")(maps)
        maps = keras.layers.ReLU(dtype=o.dtype, name="relu")(maps)
    else:
        maps = hybrid_maps(images, o.stages, o.width, o.dtype)
    outputs = keras.layers.GlobalAveragePooling2D("channels_last", dtype=o.dtype, name="pooling")(
        maps
    )
    if o.num_classes:
        outputs = zero_head(o.num_classes, o.classifier_activation)(outputs)
    model = ImageModel(images, outputs, name=o.name)
    model.options = o
    model.image_spec = ImageSpec(channels=o.image_channels)
    follow_dtype(model)
    return model


resnet.__signature__ = inspect.signature(ResNetOptions).replace(return_annotation=ImageModel)


def hybrid_maps(images, stages, width, dtype):
    """Return the feature maps of the hybrids' ResNet (`ResNetStage` in `vit_jax/models_vit.py`).

    The root divides the height and the width by 4. Each stage after the first divides them by 2.
    """
    maps = standardized_conv(HYBRID, width, 7, 2, dtype=dtype, name="root_conv")(images)
    maps = group_norm(HYBRID, dtype=dtype, name="root_norm")(maps)
    maps = keras.layers.ReLU(dtype=dtype, name="root_relu")(maps)
    maps = _max_pool("same", dtype)(maps)
    return _units(BottleneckUnit, maps, stages, width, dtype)


def _bit_root(images, width, dtype):
    """Return the maps after BiT's root, which has no norm and no ReLU.

    Although the maps have negative values, they are padded with zeros before the pooling, as in the
    original. big_vision's `bit_paper.py` pads with minus infinity, and gives different outputs.
    """
    maps = standardized_conv(BIT, width, 7, 2, dtype=dtype, name="root_conv")(images)
    maps = keras.layers.ZeroPadding2D(
        1, data_format="channels_last", dtype=dtype, name="root_zeros"
    )(maps)
    return _max_pool("valid", dtype)(maps)


def _max_pool(padding, dtype):
    return MaxPool(3, 2, padding, "channels_last", dtype=dtype, name="root_pool")


def _units(unit, maps, stages, width, dtype):
    for stage, num_units in enumerate(stages, start=1):
        for index in range(1, num_units + 1):
            strides = 2 if stage > 1 and index == 1 else 1
            name = f"stage_{stage}_unit_{index}"
            maps = unit(width * 2 ** (stage - 1), strides, dtype=dtype, name=name)(maps)
    return maps
