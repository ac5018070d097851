"""Mistakes on the command line, described in one line."""

import dataclasses
import difflib
import re

from keras_vit.cli.commands import COMMANDS
from keras_vit.cli.flags import with_recipe_option
from keras_vit.cli.metavars import plain_error
from keras_vit.cli.train import COMMON_RECIPES, Auto
from keras_vit.cli.usage import arguments, names_recipe, options_of, usage
from keras_vit.experiments.studies import STUDIES
from keras_vit.training.recipes import RECIPES, Recipe

# The option by a name that it has in another command or in another library.
OTHER_NAMES = {
    **{"--format": "--to", "--to": "--format", "--lr": "--learning-rate"},
    **{"--wd": "--weight-decay", "--total-steps": "--steps", "--max-steps": "--steps"},
    **{"--num-epochs": "--epochs", "--num-train-epochs": "--epochs"},
}


def check_command(args):
    """Raise `ValueError` if the first word is not the name of a command."""
    if not args or args[0].startswith("-") or args[0].replace("_", "-") in COMMANDS:
        return
    nearest = difflib.get_close_matches(args[0], COMMANDS, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ValueError(
        "The first word must be the name of a command; `keras-vit --help` lists them. "
        f"Received: {args[0]!r}{hint}"
    )


def install_hint(error):
    """Return what to install for the error of a backend that is missing, or an empty string."""
    backends = ("tensorflow", "jax", "torch")
    is_missing = isinstance(error, ModuleNotFoundError) and "pip install" not in str(error)
    if is_missing and error.name in backends:
        return f": pip install {error.name}, or set KERAS_BACKEND to another of the backends"
    if "Unable to import backend" in str(error):
        return f"; KERAS_BACKEND must be one of {', '.join(backends)}"
    return ""


def memory_hint(command):
    """Return which options of a command make it need less memory, as part of an error.

    Example:
    >>> from keras_vit.cli.evaluate import Evaluate
    >>> memory_hint(Evaluate("runs/photos"))
    '; use a smaller --batch-size, or a smaller --image-size'
    """
    own = [command, getattr(command, "recipe", None)]
    hints = [f"a smaller --{name}" for name in ("batch-size", "image-size") if _has(own, name)]
    hints += [f"--{name}" for name in ("accumulation-steps", "remat") if _has(own, name)]
    return f"; use {', or '.join(hints)}" if hints else ""


def _has(parts, option):
    return any(hasattr(part, option.replace("-", "_")) for part in parts)


def check_recipe(args):
    """Raise `ValueError` if the word in the place of a recipe is not the name of one."""
    place = {"train": 1, "study": 2}.get(args[0] if args else None)
    if place is None or len(args) <= place:
        return
    word, known = args[place], _recipes_of(args[0])
    is_flag_before = any(word.startswith("-") for word in args[1 : place + 1])
    if word not in known and not is_flag_before and (place == 1 or args[1] in STUDIES):
        nearest = difflib.get_close_matches(word, known, n=1)
        common = [*(("auto",) if "auto" in known else ()), *COMMON_RECIPES]
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(
            f"The recipe must be one of {', '.join(common)} or another that `keras-vit {args[0]} "
            f"--help-verbose` lists. Received: {word!r}{hint}"
        )


def _recipes_of(name):
    return {*RECIPES, *(("auto",) if name == "train" else ())}


def describe_mistake(args, box):
    """Describe in one line why tyro refuses the arguments, and how the command is used.

    Args:
        args: list of the arguments.
        box: text of tyro's error box.

    Returns:
        A string.
    """
    parts = parts_of(box)
    name = args[0].replace("_", "-") if args else None
    command = COMMANDS.get(name)
    if command is None:
        return f"{parts[0]}; see --help"
    unrecognized = [part for part in parts if part.startswith("Unrecognized")]
    for part in unrecognized[:1]:
        named = set(re.findall(r"--[\w-]+", part))
        if args[:2] == ["train", "auto"] and named & {*options_of(Recipe)}:
            return f"{part}: `auto` chooses these, and recipes such as `finetune` take them"
        if nearest := nearest_option(command, args, part):
            return f"{part}; did you mean {nearest}? See --help"
    reasons = _reasons(args, name, box, parts, unrecognized)
    reasons = [with_recipe_option(reason) for reason in reasons]
    return f"{'; '.join(reasons)}; see --help. Usage: {usage(name, command)}"


def _reasons(args, name, box, parts, unrecognized):
    """Return what is wrong with the arguments of a command, a list of texts."""
    given, shown = {_flag(word) for word in args}, arguments(COMMANDS[name])
    for argument in shown:
        if argument.is_positional and f"--{argument.field}" in given:
            return [f"`--{argument.field}` is not an option: give {argument.name} without it"]
    needs_recipe = any(row.name == "RECIPE" and row.is_required for row in shown)
    if unrecognized and needs_recipe and not names_recipe(args, _recipes_of(name)):
        return [_missing_recipe(name), *unrecognized]
    if parts[0].startswith("Expected one of"):
        return [*unrecognized, _missing_recipe(name)]
    if parts[0].startswith("Missing from"):
        return [*unrecognized, _missing(box, name, shown, args) or parts[0]]
    return unrecognized or parts[:1]


def parts_of(box):
    """Return the texts of an error box between its rules, without the title."""
    # The rules are hyphens where there is no Unicode.
    _, *parts = re.split("─{4,}|-{4,}", box)
    return [_text_of(part) for part in parts]


def _text_of(part):
    words = " ".join(part.replace("│", " ").strip("╮╯ \n").split())
    # The rest lists the types of all recipes, or explains the order of commands.
    words = words.removeprefix("Error parsing recipe: ").partition(" Got errors:")[0]
    words = words.partition(" Arguments are applied to")[0]
    words = re.sub(r" \(applied to [\w -]+\)", "", words).rstrip(".")
    return plain_error(words)


def _missing_recipe(name):
    auto = "`auto` chooses settings for your images; others are " if name == "train" else ""
    common = ", ".join(f"`{recipe}`" for recipe in COMMON_RECIPES)
    return f"a recipe is missing: {auto}{common}; `keras-vit {name} --help-verbose` lists all"


def _missing(box, name, shown, args):
    """Name the missing arguments, each of which begins a line of the box; "" if none does."""
    lines = [line.strip("│ ") for line in box.splitlines()]
    first_words = {line.partition(" ")[0] for line in lines}
    has_recipe = names_recipe(args, _recipes_of(name))
    missing = [
        f"`{argument.name}`"
        for argument in shown
        if argument.is_required
        and (not has_recipe if argument.name == "RECIPE" else argument.name in first_words)
    ]
    if len(missing) < 2:
        return "".join(f"{name} is missing" for name in missing)
    return f"{', '.join(missing[:-1])} and {missing[-1]} are missing"


def nearest_option(command, args, words):
    """Return the option of a command that is most similar to one in an error, or `None`.

    Example:
    >>> from keras_vit.cli.predict import Predict
    >>> nearest_option(Predict, ["predict", "runs", "--topp=3"], "Unrecognized options: --topp=3")
    '--top'
    """
    if not (wrong := re.search(r"--[\w-]+", words)):
        return None
    known = options_of(command)
    if "recipe" in (field.name for field in dataclasses.fields(command)):
        known += options_of(Auto if "auto" in args else Recipe)
    wrong = _flag(wrong.group())
    if OTHER_NAMES.get(wrong) in known:
        return OTHER_NAMES[wrong]
    nearest = difflib.get_close_matches(wrong, known, n=1, cutoff=0.7)
    # One that exists is in the wrong place.
    return nearest[0] if nearest and nearest != [wrong] else None


def _flag(word):
    return word.partition("=")[0].replace("_", "-")
