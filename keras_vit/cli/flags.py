"""Names of arguments in errors, replaced by the options of a command."""

import itertools
import os
import re

from keras_vit.cli.usage import options_of
from keras_vit.training.recipes import Recipe

# Field of a command: the name of that argument in the functions that the command calls.
_ARGUMENTS = {"data": "name", "model": "path", "source": "path", "file": "path", "target": "path"}


def with_option(text, command):
    """Replace the name of an argument in an error by that of its option.

    Args:
        text: the error. It is returned as it is unless it names a value of one field of the
            command.
        command: the command.

    Returns:
        A string.

    Example:
    >>> from keras_vit.cli.fewshot import Fewshot
    >>> command = Fewshot("runs/photos", max_skipped=2)
    >>> with_option("`max_skipped` must be at most 1. Received: max_skipped=2", command)
    '`--max-skipped` must be at most 1. Received: max_skipped=2'
    """
    found = [
        (argument, field, value, shown)
        for argument, field, value, shown in _given(command)
        if text.startswith(f"`{argument}`") and f"{argument}={value!r}" in text
    ]
    if len(found) != 1:
        return text
    ((argument, field, value, shown),) = found
    text = text.replace(f"`{argument}`", f"`{shown}`", 1)
    return text.replace(f"{argument}={value!r}", f"{field}={value!r}")


def with_recipe_option(text):
    """Replace the name of a setting of a recipe in an error by its option.

    Example:
    >>> with_recipe_option("`batch_size` must be positive. Received: batch_size=0")
    '`--batch-size` must be positive. Received: batch_size=0'
    """
    name = re.match(r"`(\w+)`", text)
    return text.replace(name[1], _option(name[1], Recipe) or name[1], 1) if name else text


def _given(command):
    """Yield `(argument, field, value, option or name)` for each value of a command."""
    for part in filter(None, (command, getattr(command, "recipe", None))):
        for field, value in vars(part).items():
            value = os.fspath(value) if isinstance(value, os.PathLike) else value
            # One number stands for a square.
            values = [value, *value] if isinstance(value, tuple) and len(value) == 1 else [value]
            shown = _option(field, type(part)) or field.upper()
            arguments = dict.fromkeys((field, _ARGUMENTS.get(field, field)))
            for argument, given in itertools.product(arguments, values):
                yield argument, field, given, shown


def _option(field, command):
    """Return the option of a field, or `None` if it is positional."""
    option = f"--{field.replace('_', '-')}"
    return option if option in options_of(command) else None
