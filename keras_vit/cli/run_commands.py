"""Recipes as commands."""

import dataclasses
import shlex

from keras_vit.training.recipes import RECIPES


def train_command(base, recipe, options):
    """Return the command of a recipe, by the settings that differ from those of the row `base`.

    Options that are `None` are left out; words are quoted for a shell.
    """
    before = dataclasses.asdict(RECIPES[base])
    settings = {k: v for k, v in dataclasses.asdict(recipe).items() if v != before[k]}
    if settings.get("steps"):
        # `--steps` replaces the epochs.
        settings.pop("epochs", None)
    settings |= {k: v for k, v in options.items() if v is not None}
    words = ["keras-vit", "train", base]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = value if isinstance(value, (tuple, list)) else [value]
            words += [f"--{flag}", *map(str, values)]
    return shlex.join(words)
