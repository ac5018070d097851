"""Errors of functions in the words of the command line."""

import os
import re

from keras_vit.cli.usage import options_of
from keras_vit.training.recipes import Recipe

# By field of a command: the argument of the functions that it is given to.
_ARGUMENTS = {"data": "name", "model": "path"}


def with_flag(text, command):
    """Return the error of an argument with the option that it was given with.

    Args:
        text: the error. It is returned as it is unless it names a value of the command.
        command: the command.

    Returns:
        A string.

    Example:
    >>> from keras_vit.cli.fewshot import Fewshot
    >>> command = Fewshot("runs/photos", max_skipped=2)
    >>> with_flag("`max_skipped` must be at most 1. Received: max_skipped=2", command)
    '`--max-skipped` must be at most 1. Received: max_skipped=2'
    """
    for argument, field, value, shown in _given(command):
        received = f"{argument}={value!r}"
        if text.startswith(f"`{argument}`") and received in text:
            text = text.replace(f"`{argument}`", f"`{shown}`", 1)
            return text.replace(received, f"{field}={value!r}")
    return text


def with_recipe_flag(text):
    """Return the error of a setting of a recipe with its option.

    Example:
    >>> with_recipe_flag("`batch_size` must be positive. Received: batch_size=0")
    '`--batch-size` must be positive. Received: batch_size=0'
    """
    name = re.match(r"`(\w+)`", text)
    return text.replace(name[1], _option(name[1], Recipe) or name[1], 1) if name else text


def _given(command):
    """Yield `(argument, field, value, option or name)` for each field of a command."""
    for part in filter(None, (command, getattr(command, "recipe", None))):
        for field, value in vars(part).items():
            value = os.fspath(value) if isinstance(value, os.PathLike) else value
            shown = _option(field, type(part)) or field.upper()
            for argument in dict.fromkeys((field, _ARGUMENTS.get(field, field))):
                yield argument, field, value, shown


def _option(field, command):
    """Return the option of a field, or `None` if it is positional."""
    option = f"--{field.replace('_', '-')}"
    return option if option in options_of(command) else None
