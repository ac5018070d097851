"""The value range that the models take."""

import keras
import numpy as np

from keras_vit.core.pixels import value_range, warn_of_pixels


def preprocess(images):
    """Scale pixel values from [0, 255] to [-1, 1], the range that all the models take.

    Floating-point images within [-1, 1] that are not black, as they are when they were scaled
    before, and values far beyond [0, 255] give a warning.

    Args:
        images: array or tensor of any shape with values in [0, 255]; integers become float32.

    Returns:
        An array or tensor of the same kind and shape, `(images - 127.5) / 127.5`.

    Reference:
        `vit_jax/input_pipeline.py`.

    Example:
    >>> keras_vit.preprocess(np.array([0, 51, 255], "uint8"))
    array([-1. , -0.6,  1. ], dtype=float32)
    """
    _check_range(images)
    if not hasattr(images, "dtype") or isinstance(images, np.ndarray):
        images = np.asarray(images, "float32")
    elif "int" in str(images.dtype):
        images = keras.ops.cast(images, "float32")
    return (images - 127.5) / 127.5


def _check_range(images):
    found = value_range(images)
    if found is None:
        return
    low, high = found
    dtype = images.dtype if hasattr(images, "dtype") else np.asarray(images).dtype
    # Integers of so few values are dark pixels.
    if "float" in str(dtype) and low >= -1 and high <= 1 and (low, high) != (0, 0):
        warn_of_pixels(
            "`preprocess` takes pixels in [0, 255]. Received: values within [-1, 1], which were "
            "probably scaled before"
        )
    # Interpolation overshoots at sharp edges, but not as far.
    elif low < -255 or high > 2 * 255:
        warn_of_pixels("`preprocess` takes pixels in [0, 255]. Received: values far beyond")
