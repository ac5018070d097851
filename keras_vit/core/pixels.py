"""Checks of the dtype and range of images for models."""

import contextlib
import contextvars
import logging

import keras
import numpy as np

# Pillow's limit (`Image.MAX_IMAGE_PIXELS`): a quarter of a gigabyte of RGB. A file of a few
# kilobytes can claim a thousand times as much (a decompression bomb).
MAX_PIXELS = 89_478_485
# Normalized images range from -1 to 1 here, and from about -2.7 to 2.7 with ImageNet's statistics.
MAX_NORMALIZED = 10
# Interpolation can overshoot the range at sharp edges.
MAX_OVERSHOOT = 1.5
RULE = "must be scaled to [-1, 1], as `keras_vit.preprocess` does"
# Number of images of an array whose values are looked at.
_CHECKED = 32
_IS_WARNED = contextvars.ContextVar("is_warned", default=False)


def check_pixels(images, argument="images", model=None):
    """Check that images may be normalized for a model.

    Pixels in [0, 255] are refused by their dtype or values. The logger `keras_vit` warns of two
    ranges that may be right: values beyond [-1, 1], as of images normalized by mean and standard
    deviation, and values all in [0, 1], where every pixel would be brighter than gray. Tensors
    without values, in a traced function, are not checked.

    Args:
        images: array or tensor.
        argument: name of the argument for the error message.
        model: the model for the images; no check if it scales its inputs itself.

    Raises:
        ValueError: if the images are integers, or have NaN, infinity, or values beyond [-10, 10].

    Example:
    >>> from keras_vit.core.pixels import check_pixels
    >>> check_pixels(np.linspace(-1, 1, 12).reshape(1, 2, 2, 3))
    >>> check_pixels(np.zeros((1, 2, 2, 3), "uint8"))
    Traceback (most recent call last):
    ValueError: `images` must be scaled to [-1, 1], as `keras_vit.preprocess` does. Received: ...
    """
    if model is None or not scales_inputs(model):
        check_floats(images, argument)
        bounds = value_range(images)
        check_range(bounds, argument)
        warn_of_range(bounds)


def check_floats(images, argument="images"):
    """Check that images are floating-point numbers, also in traced functions.

    Args:
        images: array or tensor.
        argument: name of the argument for the error message.

    Raises:
        ValueError: if the images are not floating-point numbers.
    """
    dtype = keras.backend.standardize_dtype(images.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(f"`{argument}` {RULE}. Received: {argument} of dtype {dtype}")


def check_array(model, images, argument="x"):
    """Check an array or a tensor of images for a model: its shape and its first images.

    A list or a dictionary of one value is checked as that value. Other inputs, such as datasets,
    are not checked.

    Raises:
        ValueError: if `images` is a list or tuple of several; or as `check_shape` and
            `check_pixels`.
    """
    if isinstance(images, (list, tuple)) and len(images) != 1 == len(model.inputs):
        raise ValueError(
            f"`{argument}` must be an array of images, as `np.stack` makes, or a dataset. "
            f"Received: a {type(images).__name__} of {len(images)}"
        )
    if isinstance(images, (list, tuple, dict)) and len(images) == 1 == len(model.inputs):
        (images,) = images.values() if isinstance(images, dict) else images
    if not isinstance(images, np.ndarray) and not keras.ops.is_tensor(images):
        return
    check_shape(model, images, argument)
    check_pixels(images[:_CHECKED], argument, model)


def check_shape(model, images, argument="images"):
    """Raise an error unless images are an array of at least one image of the model's shape."""
    expected = tuple(model.inputs[0].shape)[1:]
    shape = tuple(getattr(images, "shape", ()))
    if (
        len(shape) != len(expected) + 1
        or shape[0] == 0
        or any(size not in (None, n) for size, n in zip(expected, shape[1:], strict=True))
    ):
        sizes = ", ".join("any" if size is None else str(size) for size in expected)
        what = f"shape {shape}" if hasattr(images, "shape") else f"type {type(images).__name__}"
        raise ValueError(
            f"`{argument}` must be an array (batch, {sizes}) of at least one image. "
            f"Received: {argument} of {what}"
        )


def value_range(images):
    """Return the least and the greatest value of images, or `None` if there are no values.

    Args:
        images: array or tensor of any backend; tensors in a traced function have no values.

    Returns:
        `(minimum, maximum)`, two floats, which are NaN if any value is NaN.
    """
    try:
        is_tensor = keras.ops.is_tensor(images)
        values = keras.ops.convert_to_numpy(images) if is_tensor else np.asarray(images)
    # Each framework has its own error for a tensor without values.
    except Exception:
        return None
    if values.dtype == object or not values.size:
        return None
    return float(values.min()), float(values.max())


def check_range(bounds, argument="images"):
    """Check the range of the values of images.

    Args:
        bounds: result of `value_range`.
        argument: name of the argument for the error message.

    Raises:
        ValueError: if a value is NaN or not within [-10, 10].
    """
    if bounds and not is_in_range(bounds):
        raise range_error(bounds, argument)


def range_error(bounds, argument):
    """Return the error for images with a range of values that `is_in_range` refuses."""
    hint = ": some are NaN, which scaling does not mend" if np.isnan(bounds[0]) else ""
    received = f"values from {bounds[0]} to {bounds[1]}{hint}"
    return ValueError(f"`{argument}` {RULE}. Received: {received}")


def is_in_range(bounds):
    """Return whether a range of values lies within [-10, 10]; that of NaN does not."""
    return bounds[0] >= -MAX_NORMALIZED and bounds[1] <= MAX_NORMALIZED


@contextlib.contextmanager
def warned_of_range():
    """Suppress warnings of `warn_of_range` about images that were checked before."""
    token = _IS_WARNED.set(True)
    try:
        yield
    finally:
        _IS_WARNED.reset(token)


def is_warned_of_range():
    """Whether warnings of `warn_of_range` are suppressed."""
    return _IS_WARNED.get()


def warn_of_range(bounds):
    """Log a warning if the range of images suggests that they are scaled wrongly."""
    low, high = bounds or (0, 0)
    if is_warned_of_range():
        return
    if low < -MAX_OVERSHOOT or high > MAX_OVERSHOOT:
        received = (
            "values beyond [-1, 1], as if normalized with a mean and a standard deviation; models "
            "of `from_checkpoint` normalize images themselves"
        )
    elif low >= 0 and high <= 1 and low < high:
        received = "values in [0, 1], as if divided by 255; they are not rescaled"
    else:
        return
    logging.getLogger("keras_vit").warning("Images %s. Received: %s", RULE, received)


def scales_inputs(model):
    """Whether a model scales pixels itself."""
    scaling = (keras.layers.Rescaling, keras.layers.Normalization)
    return any(isinstance(layer, scaling) for layer in getattr(model, "layers", ()))
