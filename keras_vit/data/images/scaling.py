"""`preprocess`: scale pixel values from [0, 255] to [-1, 1], the range of the models."""

import logging
from typing import Any

import keras
import numpy as np

from keras_vit.core.image_spec import MAX_NORMALIZED

# Interpolated pixels go below zero by less than this share of the largest value.
_OVERSHOOT_SHARE = 0.25
# Interpolated pixels can exceed [0, 255] by this margin at sharp edges.
_MARGIN = 63.75


def preprocess(images: Any) -> Any:
    """Scale pixel values from [0, 255] to [-1, 1], the range that all the models take.

    Floating-point values may slightly exceed [0, 255], as after interpolation at sharp edges. A
    warning is logged if the values seem to be scaled already, because they are within [-1, 1], or
    on both sides of zero.

    Args:
        images: array or tensor of any shape with values in [0, 255]; integers become float32.

    Returns:
        An array or tensor of the same kind and shape, `(images - 127.5) / 127.5`.

    Raises:
        ValueError: if the images are not numbers, integers are not in [0, 255], or floating-point
            values are NaN or not in [-63.75, 318.75]. Symbolic tensors are not checked.

    Reference:
        `vit_jax/input_pipeline.py`.

    Example:
    >>> keras_vit.preprocess(np.array([0, 51, 255], "uint8"))
    array([-1. , -0.6,  1. ], dtype=float32)
    """
    images = images if hasattr(images, "dtype") else np.asarray(images)
    _check_values(images)
    return scale_pixels(images)


def scale_pixels(images):
    """Scale an array or a tensor as `preprocess` does, without checking the values."""
    if isinstance(images, np.ndarray | np.generic):
        images = np.asarray(images, "float32")
    elif "int" in str(images.dtype):
        images = keras.ops.cast(images, "float32")
    return (images - 127.5) / 127.5


def _check_values(images):
    # A torch dtype has no `name`. "int" is also in "uint8", and "float" in "bfloat16".
    dtype = getattr(images.dtype, "name", str(images.dtype))
    is_integer = "int" in dtype
    if not is_integer and "float" not in dtype:
        raise ValueError(f"`images` must be numbers from 0 to 255. Received: dtype {dtype}")
    try:
        values = np.asarray(keras.ops.convert_to_numpy(images))
    # Each framework raises a different error for symbolic tensors.
    except Exception:
        return
    if not values.size:
        return
    bounds = low, high = float(values.min()), float(values.max())
    margin = 0 if is_integer else _MARGIN
    # This condition is also true for NaN.
    if not (low >= -margin and high <= 255 + margin):
        raise ValueError(
            "`images` must be in [0, 255], or, if they are floating-point values, in "
            f"[{-_MARGIN}, {255 + _MARGIN}]. Received: values from {low} to {high}"
        )
    # Integers from 0 to 1, and images of zeros, are dark pixels: they need not have been scaled.
    is_dark = is_integer or (low, high) == (0, 0)
    is_centered = high <= MAX_NORMALIZED and low < -_OVERSHOOT_SHARE * abs(high)
    if not is_dark and (is_centered or (low >= -1 and high <= 1)):
        logging.getLogger("keras_vit").warning(
            "`preprocess` takes pixels in [0, 255]. Received: values from %g to %g, which were "
            "probably scaled before",
            *bounds,
        )
