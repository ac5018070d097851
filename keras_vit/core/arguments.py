"""Checks of arguments, and the values that several wings accept for an argument."""

import difflib
import inspect
import math
import numbers

import numpy as np

# Axes of the attention in the two halves of an axial block, and the names of the halves.
AXES = ("rows", "columns")
# Base of the frequencies of rotary position embeddings: `rope_theta` in the configuration of
# DINOv3 in transformers, whose models all have it.
ROTARY_BASE = 100.0
# Targets of masked patch prediction.
TARGETS = ("mean_color", "downsized", "pixels")
# Levels per channel, in [-1, 1], of the colors that `mean_color` and `downsized` predict.
COLOR_LEVELS = 8
# Loss of a segmenter, whose labels are masks, and its heads.
SEGMENTATION, SEGMENTER_HEADS = "segmentation", ("linear", "mask")
# Label of pixels without a class, as in PASCAL VOC: they are neither trained on nor evaluated.
IGNORED = 255
# Dtypes that `Predictor` computes in.
DTYPES = ("float32", "bfloat16", "float16")


def as_pair(value, argument):
    """Return the value as a pair of integers, checked to be positive."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(is_integer(size) and size > 0 for size in pair):
        raise ValueError(
            f"`{argument}` must be a positive integer or a pair of them. "
            f"Received: {argument}={value!r:.200}"
        )
    return tuple(int(size) for size in pair)


def is_integer(value):
    """Whether the value is an integer of Python or NumPy; a boolean is not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value):
    """Whether the value is a finite real number; a boolean is not."""
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
    """Return rows and columns of the patches of an image, which they must tile exactly.

    Return `None` for images of any size, whose sides are `None`. A graph's tensors are not checked.
    """
    sizes = list(zip(image_size, patch_size, strict=True))
    if any(pixels is None for pixels in image_size):
        return None
    # The VALID convolution of the original drops the pixels of incomplete patches silently.
    if any(is_integer(pixels) and pixels % patch for pixels, patch in sizes):
        raise ValueError(
            f"`image_size` must be a multiple of {patch_size}, the pixels that a token stands for. "
            f"Received: image_size={image_size}"
        )
    return tuple(pixels // patch for pixels, patch in sizes)


def constructor_arguments(instance):
    """Return the arguments that an object was constructed with, for `get_config`.

    Only the constructors of this package count. Each of their arguments must be stored as an
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
    """Return a `ValueError` about an argument `path`: its rule, and details of the file."""
    return ValueError(f"`path` must {rule}. Received: path={str(path)!r}{details}")


def as_objects(values):
    """Return a sequence as an array `(length,)` of objects.

    NumPy would turn lists of equal length into a matrix, and strip zeros from the end of bytes.

    Example:
    >>> from keras_vit.core.arguments import as_objects
    >>> as_objects([[1, 2], [3, 4]]).shape
    (2,)
    """
    array = np.empty(len(values), object)
    array[:] = values
    return array
