"""A training run as the command that repeats it."""

import dataclasses
import shlex

from keras_vit.training.recipes import RECIPES


def train_command(recipe, base, **options):
    """Return the command `keras-vit train` of a recipe.

    Args:
        recipe: a `Recipe`.
        base: name of the row of `RECIPES` to which the command adds the settings that differ.
        **options: the other options of the command; those that are `None` are left out.

    Returns:
        A string for a shell.

    Example:
    >>> recipe = dataclasses.replace(keras_vit.training.RECIPES["finetune"], steps=50)
    >>> train_command(recipe, "finetune", model="ViT_Ti16", data="folder:my photos")
    "keras-vit train finetune --steps 50 --model ViT_Ti16 --data 'folder:my photos'"
    """
    before, now = dataclasses.asdict(RECIPES[base]), dataclasses.asdict(recipe)
    settings = {name: value for name, value in now.items() if value != before[name]}
    settings |= {name: value for name, value in options.items() if value is not None}
    words = [word for name, value in settings.items() for word in _flag(name, value)]
    return shlex.join(["keras-vit", "train", base, *words])


def _flag(name, value):
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *map(str, value if isinstance(value, (tuple, list)) else [value])]
