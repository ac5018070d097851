"""Checks of arguments: the error names the argument, the rule and what was received."""

import numbers


def as_pair(value, argument):
    """`value` or `(value, value)`, checked to be two positive integers."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(is_integer(size) and size > 0 for size in pair):
        raise ValueError(
            f"`{argument}` must be a positive integer or a pair of them. "
            f"Received: {argument}={value!r}"
        )
    return tuple(int(size) for size in pair)


def is_integer(value):
    """Whether the value is an integer, NumPy's included, and not a truth value."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_integer(argument, value, minimum):
    """The value as a Python integer, checked to be at least the minimum."""
    if not is_integer(value) or value < minimum:
        raise ValueError(
            f"`{argument}` must be an integer of at least {minimum}. Received: {argument}={value!r}"
        )
    return int(value)


def check_rate(argument, value):
    """Raises unless the value is a rate at which something can be dropped."""
    if not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(
            f"`{argument}` must be at least 0 and less than 1. Received: {argument}={value!r}"
        )


def check_heads(width, num_heads):
    """Raises unless the heads share the width equally."""
    if not is_integer(num_heads) or num_heads < 1 or width % num_heads:
        raise ValueError(
            f"`num_heads` must be a positive divisor of the width {width}. "
            f"Received: num_heads={num_heads!r}"
        )


def check_names(argument, value):
    """Raises unless the value is a list of names, or `None`."""
    if value is not None and not (isinstance(value, (list, tuple)) and value):
        raise ValueError(
            f"`{argument}` must be a list of names, or None. Received: {argument}={value!r}"
        )


def check_choice(argument, value, choices):
    """Raises unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{argument}` must be one of {choices}. Received: {argument}={value!r}")
