"""Arguments, and checks of them: the error names the argument, the rule and what was received."""

import difflib
import functools
import inspect
import math
import numbers
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable)

# Our names of arguments that have others in Keras, timm or transformers.
ARGUMENTS_ELSEWHERE = {
    "input_shape": "image_size",
    "img_size": "image_size",
    "classes": "num_classes",
    "include_top": "num_classes",
    "pretrained": "weights",
    "num_labels": "num_classes",
    "drop_rate": "dropout",
    "hidden_dropout_prob": "dropout",
    "drop_path_rate": "stochastic_depth",
    "attention_probs_dropout_prob": "attention_dropout",
    "torch_dtype": "dtype",
    "shuffle": "training",
    "label_mode": "one_hot",
    "r": "rank",
    "lora_alpha": "alpha",
    "target_modules": "layers",
}


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
    """Whether the value is an integer of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value):
    """Whether the value is a finite real number, and no boolean."""
    return is_real(value) and math.isfinite(value)


def is_real(value):
    """Whether the value is a real number, which may be infinite or NaN, and no boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_options(function, options, known):
    """Raise `TypeError` for an option whose name is not among the known ones of a function.

    `function` is its name.
    """
    for name, value in options.items():
        if name not in known:
            nearest = ARGUMENTS_ELSEWHERE.get(name)
            if nearest not in known:
                (nearest,) = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise TypeError(
                f"`{function}` has no argument of this name; the nearest one is `{nearest}`. "
                f"Received: {name}={value!r}"
            )


def names_nearest(function: Function) -> Function:
    """Decorate a function: an unknown keyword argument is an error that names the nearest one."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args, **kwargs):
        check_options(function.__name__, kwargs, known)
        return function(*args, **kwargs)

    return cast(Function, checked)


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


def check_epsilon(epsilon):
    """Raise `ValueError` unless the value is a number between 0 and 1."""
    if not is_number(epsilon) or not 0 < epsilon < 1:
        raise ValueError(
            f"`epsilon` must be a number between 0 and 1. Received: epsilon={epsilon!r}"
        )


def check_heads(width, num_heads, is_rotary=False):
    """Raise `ValueError` unless the number of heads divides the width.

    `is_rotary`: whether heads are rotated, so that their width must be a multiple of 4.
    """
    if not is_integer(num_heads) or num_heads < 1 or width % num_heads:
        raise ValueError(
            f"`num_heads` must be a positive divisor of the width {width}. "
            f"Received: num_heads={num_heads!r}"
        )
    if is_rotary and width // num_heads % 4:
        raise ValueError(
            f"`num_heads` must divide the width {width} into multiples of 4, which rotary position "
            f"embeddings need. Received: num_heads={num_heads!r}"
        )


def check_names(argument, value):
    """Raise `ValueError` unless the value is a list of names, or `None`."""
    if value is not None and not (isinstance(value, (list, tuple)) and value):
        raise ValueError(
            f"`{argument}` must be a list of names, or None. Received: {argument}={value!r}"
        )


def check_choice(argument, value, choices):
    """Raise `ValueError` unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{argument}` must be one of {choices}. Received: {argument}={value!r}")


def grid_size(image_size, patch_size):
    """Return rows and columns of the patches of an image, which they must tile exactly.

    For a size of `None`, any size, return `None`. Tensors of a graph are not checked.
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

    Only constructors of this package count, and each argument must be an attribute of the same
    name.
    """
    found = {}
    for kind in reversed(type(instance).__mro__):
        if kind.__module__.startswith("keras_vit.") and "__init__" in vars(kind):
            _, *parameters = inspect.signature(kind.__init__).parameters.values()
            names = [given.name for given in parameters if given.kind != given.VAR_KEYWORD]
            found |= {name: getattr(instance, name) for name in names}
    return found


def path_error(path, rule, found=""):
    """Return a `ValueError` about the file of an argument `path`: the rule, and what was found."""
    return ValueError(f"`path` must {rule}. Received: path={str(path)!r}{found}")


def accepts_old_name(old, new):
    """Decorate a function so that it also takes a keyword argument by its old name."""

    def decorate(function):
        @functools.wraps(function)
        def renamed(*args, **kwargs):
            if old in kwargs:
                # `dataclasses.replace` passes the present value by the new name.
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return renamed

    return decorate


def as_objects(values):
    """Return a sequence as an array `(length,)` of its values, whatever they are.

    NumPy would make a matrix of lists of one length, and cut zeros off the end of bytes.

    Example:
    >>> from keras_vit.core.arguments import as_objects
    >>> as_objects([[1, 2], [3, 4]]).shape
    (2,)
    """
    array = np.empty(len(values), object)
    array[:] = values
    return array


def check_flags(**flags):
    """Raise `ValueError` unless all options are booleans."""
    for name, value in flags.items():
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
