"""The value range that the models take."""

import keras
import numpy as np


def preprocess(images):
    """Scales pixel values from [0, 255] to [-1, 1], the range that all the models take.

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
    if not hasattr(images, "dtype") or isinstance(images, np.ndarray):
        images = np.asarray(images, "float32")
    elif "int" in str(images.dtype):
        images = keras.ops.cast(images, "float32")
    return (images - 127.5) / 127.5
