"""Checks of arguments, and constants that several subpackages share."""

import difflib
import inspect
import math
import numbers

import numpy as np

# Axes along which an axial block attends, and names of the two sublayers that do so.
AXES = ("rows", "columns")
# Base of the frequencies of rotary position embeddings. It is the `rope_theta` of all DINOv3 models
# in transformers.
ROTARY_BASE = 100.0
# What a model may predict about a masked patch.
TARGETS = ("mean_color", "downsized", "pixels")
# `mean_color` and `downsized` divide the range [-1, 1] of a color channel into 8 levels.
COLOR_LEVELS = 8
# Name of the loss that trains a segmenter, and names of the heads that a segmenter may have.
SEGMENTATION, SEGMENTER_HEADS = "segmentation", ("linear", "mask")
# Names of the losses that train a model to predict values: mean squared and mean absolute error.
REGRESSION_LOSSES = ("regression", "regression_mae")
# Mask value of pixels without a class, as in PASCAL VOC. Training and evaluation skip these pixels.
IGNORED = 255
# Dtypes that `Predictor` computes in.
DTYPES = ("float32", "bfloat16", "float16")


def as_pair(value, argument):
    """Return a pair of positive integers, given a pair or one integer for both."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(is_integer(size) and size > 0 for size in pair):
        raise ValueError(
            f"`{argument}` must be a positive integer or a pair of them. "
            f"Received: {argument}={value!r:.200}"
        )
    return tuple(int(size) for size in pair)


def is_integer(value):
    """Whether the value is a Python or NumPy integer, and not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value):
    """Whether the value is a finite real number, and not a boolean."""
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def check_options(function, options, known):
    """Raise `TypeError` for an option that is not among the known arguments of a function."""
    for name, value in options.items():
        if name not in known:
            (nearest,) = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise TypeError(
                f"`{function}` has no argument of this name; the nearest one is `{nearest}`. "
                f"Received: {name}={value!r}"
            )


def check_integer(argument, value, minimum):
    """Return the value as a Python integer, checked to be at least the minimum."""
    if not is_integer(value) or value < minimum:
        raise ValueError(
            f"`{argument}` must be an integer of at least {minimum}. Received: {argument}={value!r}"
        )
    return int(value)


def check_rate(argument, value):
    """Raise `ValueError` unless the value is a rate, at least 0 and less than 1."""
    if not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(
            f"`{argument}` must be at least 0 and less than 1. Received: {argument}={value!r}"
        )


def check_choice(argument, value, choices):
    """Raise `ValueError` unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{argument}` must be one of {choices}. Received: {argument}={value!r}")


def grid_size(image_size, patch_size):
    """Return `(rows, columns)` of an image's patches; raise an error if they do not tile it.

    Return `None` if a side is `None`: images may have any size. Tensors in a graph are not checked.
    """
    sizes = list(zip(image_size, patch_size, strict=True))
    if any(pixels is None for pixels in image_size):
        return None
    # Otherwise the convolution would silently drop the pixels of incomplete patches.
    if any(is_integer(pixels) and pixels % patch for pixels, patch in sizes):
        raise ValueError(
            f"`image_size` must be a multiple of {patch_size}, the pixels that a token stands for. "
            f"Received: image_size={image_size}"
        )
    return tuple(pixels // patch for pixels, patch in sizes)


def constructor_arguments(instance):
    """Return the arguments that an object was constructed with, for `get_config`.

    Arguments of Keras's constructors are left out. Each other argument must be stored as an
    attribute of the same name.
    """
    arguments = {}
    for kind in reversed(type(instance).__mro__):
        if kind.__module__.startswith("keras_vit.") and "__init__" in vars(kind):
            _, *parameters = inspect.signature(kind.__init__).parameters.values()
            names = [given.name for given in parameters if given.kind != given.VAR_KEYWORD]
            arguments |= {name: getattr(instance, name) for name in names}
    return arguments


def path_error(path, rule, details=""):
    """Return a `ValueError` for an argument `path` that breaks a rule, with details of the file."""
    return ValueError(f"`path` must {rule}. Received: path={str(path)!r}{details}")


def as_objects(values):
    """Return a sequence as an array `(length,)` of objects.

    `np.array` would turn lists of equal length into a matrix, and strip zeros at the end of bytes.

    Example:
    >>> from keras_vit.core.arguments import as_objects
    >>> as_objects([[1, 2], [3, 4]]).shape
    (2,)
    """
    array = np.empty(len(values), object)
    array[:] = values
    return array
