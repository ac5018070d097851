"""The check of the values of images, and the limit of their size."""

import keras
import numpy as np

# Pillow's limit (`Image.MAX_IMAGE_PIXELS`): a quarter of a gigabyte of RGB. A file of a few
# kilobytes can claim a thousand times as much (a decompression bomb).
MAX_PIXELS = 89_478_485
# Normalized images range from -1 to 1 here, and from about -2.7 to 2.7 with ImageNet's statistics.
MAX_NORMALIZED = 10


def check_images(images, argument="images"):
    """Raise `ValueError` if the first image of an array has integers or values beyond [-10, 10].

    Pixels from 0 to 255 are the commonest mistake, and the predictions would be wrong in silence.
    Datasets, generators and tensors of a traced function are not looked into.

    Args:
        images: array or tensor, a list or dictionary of them, or another input of a model.
        argument: name of the argument for the error message.

    Example:
    >>> from keras_vit.core.pixels import check_images
    >>> check_images(np.linspace(-1, 1, 12).reshape(1, 2, 2, 3))
    >>> check_images(np.zeros((1, 2, 2, 3), "uint8"))
    Traceback (most recent call last):
    ValueError: `images` must be scaled to [-1, 1], as `keras_vit.preprocess` does. Received: ...
    """
    for array in keras.tree.flatten(images):
        if not (isinstance(array, np.ndarray) or keras.ops.is_tensor(array)) or not len(array):
            continue
        dtype = keras.backend.standardize_dtype(array.dtype)
        first = keras.ops.convert_to_numpy(keras.ops.cast(array[:1], "float32"))
        # The comparison is false for NaN.
        if not keras.backend.is_float_dtype(dtype) or not (np.abs(first) <= MAX_NORMALIZED).all():
            raise ValueError(
                f"`{argument}` must be scaled to [-1, 1], as `keras_vit.preprocess` does. "
                f"Received: values from {first.min()} to {first.max()} of dtype {dtype}"
            )
