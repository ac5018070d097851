"""Maps at several strides, computed from the map of the patches."""

import math

import keras

from keras_vit.layers.normalization import layer_norm

# Binary logarithms of the strides of the levels.
LEVELS = {"P2": 2, "P3": 3, "P4": 4, "P5": 5}
_CHANNELS_LAST = {"data_format": "channels_last"}


def simple_pyramid(patches, levels, stride, channels, dtype):
    """Return a dictionary of the maps of ViTDet's simple feature pyramid.

    Reference:
        `SimpleFeaturePyramid` in `modeling/backbone/vit.py` of detectron2.
    """
    return {
        level: _pyramid_level(patches, _doublings(stride, level), level, channels, dtype)
        for level in levels
    }


def _doublings(stride, level):
    """Return how often the size of maps is doubled; halved if it is negative."""
    return round(math.log2(math.prod(stride)) / 2) - LEVELS[level]


def _pyramid_level(maps, doublings, level, channels, dtype):
    for number in range(doublings):
        if number:
            maps = layer_norm(dtype, f"{level}_up_{number - 1}_norm")(maps)
            maps = keras.layers.Activation(
                "gelu", dtype=dtype, name=f"{level}_up_{number - 1}_gelu"
            )(maps)
        options = {"dtype": dtype, "name": f"{level}_up_{number}", **_CHANNELS_LAST}
        maps = keras.layers.Conv2DTranspose(maps.shape[-1] // 2, 2, strides=2, **options)(maps)
    for number in range(-doublings):
        options = {"dtype": dtype, "name": f"{level}_down_{number}", **_CHANNELS_LAST}
        maps = keras.layers.MaxPooling2D(2, **options)(maps)
    for name, size in (("lateral", 1), ("output", 3)):
        options = {"use_bias": False, "dtype": dtype, "name": f"{level}_{name}", **_CHANNELS_LAST}
        maps = keras.layers.Conv2D(channels, size, padding="same", **options)(maps)
        maps = layer_norm(dtype, f"{level}_{name}_norm")(maps)
    return maps


def reassembled(patches, level, stride, channels, dtype):
    """Return the map of one level of DPT.

    Reference:
        `DPTReassembleStage` of transformers.
    """
    options = {"dtype": dtype, **_CHANNELS_LAST}
    maps = keras.layers.Conv2D(channels, 1, name=f"{level}_projection", **options)(patches)
    doublings, name = _doublings(stride, level), f"{level}_resize"
    if doublings > 0:
        options |= {"strides": 2**doublings, "name": name}
        return keras.layers.Conv2DTranspose(channels, 2**doublings, **options)(maps)
    for number in range(-doublings):
        # With padding="same" Keras pads an even number of rows at the end alone.
        maps = keras.layers.ZeroPadding2D(1, name=f"{name}_{number}_padding", **options)(maps)
        maps = keras.layers.Conv2D(channels, 3, strides=2, name=f"{name}_{number}", **options)(maps)
    return maps
