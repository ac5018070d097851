"""The commands as types of tyro, whose help fits a screen."""

import dataclasses
import difflib
import functools
import operator
import re
import typing
from typing import Annotated

import tyro

from keras_vit.cli.benchmark import Benchmark
from keras_vit.cli.checkpoints import Checkpoints
from keras_vit.cli.client import Client
from keras_vit.cli.convert import Convert
from keras_vit.cli.data import Data
from keras_vit.cli.deduplicate import Deduplicate
from keras_vit.cli.evaluate import Evaluate
from keras_vit.cli.export import Export
from keras_vit.cli.fewshot import Fewshot
from keras_vit.cli.inspect import Inspect
from keras_vit.cli.inspect_checkpoint import InspectCheckpoint
from keras_vit.cli.models import Models
from keras_vit.cli.predict import Predict
from keras_vit.cli.quickstart import Quickstart
from keras_vit.cli.search import Search
from keras_vit.cli.study import Study
from keras_vit.cli.study_paper import Paper
from keras_vit.cli.train import COMMON_RECIPES, Auto, Train, recipe_type
from keras_vit.cli.vtab import Vtab
from keras_vit.experiments.studies.settings import STUDIES
from keras_vit.training.recipes import RECIPES, Recipe

COMMANDS = {
    "quickstart": Quickstart,
    "models": Models,
    "checkpoints": Checkpoints,
    "convert": Convert,
    "inspect-checkpoint": InspectCheckpoint,
    "data": Data,
    "deduplicate": Deduplicate,
    "train": Train,
    "evaluate": Evaluate,
    "fewshot": Fewshot,
    "study": Study,
    "study-paper": Paper,
    "vtab": Vtab,
    "benchmark": Benchmark,
    "predict": Predict,
    "search": Search,
    "inspect": Inspect,
    "export": Export,
    "client": Client,
}

# The option of a command by a name that it has in another command or in Python.
OTHER_NAMES = {
    ("convert", "--format"): "--to",
    ("export", "--to"): "--format",
}


def command_type(args):
    """Return the type of all commands for an iterable of arguments.

    Commands other than the one in the arguments are described by one line. If they ask for help
    and do not name a recipe, only common recipes are listed.
    """
    lists_few = bool({"-h", "--help"} & {*args}) and not {"auto", *RECIPES} & {*args}
    types = [
        Annotated[
            _with_debug(command, lists_few and name in args),
            tyro.conf.subcommand(
                name, description=None if name in args else command.__doc__.partition("\n")[0]
            ),
        ]
        for name, command in COMMANDS.items()
    ]
    return functools.reduce(operator.or_, types)


def with_one_length(args):
    """Return arguments in which `--steps` replaces the epochs of a recipe, or `--epochs` its steps.

    A recipe has one of the two, and the other is `None`.

    Example:
    >>> with_one_length(["train", "finetune", "--epochs", "3"])
    ['train', 'finetune', '--epochs', '3', '--steps', 'None']
    """
    words = {word.partition("=")[0] for word in args}
    given = [flag for flag in ("--epochs", "--steps") if flag in words]
    if len(given) != 1 or not ("vtab" in args[:1] or {*RECIPES} & {*args}):
        return args
    other = "--steps" if given == ["--epochs"] else "--epochs"
    return [*args, other, "None"]


def check_recipe(args):
    """Raise `ValueError` if the word in the place of a recipe is not the name of one."""
    place = {"train": 1, "study": 2}.get(args[0] if args else None)
    if place is None or len(args) <= place:
        return
    word, known = args[place], {*RECIPES, *(("auto",) if args[0] == "train" else ())}
    is_flag_before = any(word.startswith("-") for word in args[1 : place + 1])
    if word not in known and not is_flag_before and (place == 1 or args[1] in STUDIES):
        nearest = difflib.get_close_matches(word, RECIPES, n=3, cutoff=0)
        raise ValueError(
            f"`recipe` must be the name of a recipe, such as {', '.join(nearest)}. "
            f"`keras-vit {args[0]} --help-verbose` lists all. Received: {word!r}"
        )


def nearest_option(args, words):
    """Return the option of a command that is most similar to one in an error, or `None`.

    Example:
    >>> nearest_option(["predict", "runs/small", "--topp=3"], "Unrecognized options: --topp=3")
    '--top'
    """
    command = COMMANDS.get(args[0]) if args else None
    if command is None or not (wrong := re.search(r"--[\w-]+", words)):
        return None
    known = _options_of(command)
    if "recipe" in (field.name for field in dataclasses.fields(command)):
        known += _options_of(Auto if "auto" in args else Recipe)
    wrong = wrong.group().replace("_", "-")
    if (args[0], wrong) in OTHER_NAMES:
        return OTHER_NAMES[args[0], wrong]
    nearest = difflib.get_close_matches(wrong, known, n=1)
    # One that exists is in the wrong place.
    return nearest[0] if nearest and nearest != [wrong] else None


def _options_of(command):
    """Return the options of a dataclass, without its positional arguments."""
    hints = typing.get_type_hints(command, include_extras=True)
    names = [
        name
        for name, hint in hints.items()
        if name != "recipe" and tyro.conf.Positional not in getattr(hint, "__metadata__", ())
    ]
    options = [f"--{name.replace('_', '-')}" for name in names]
    return options + [
        option.replace("--", "--no-", 1)
        for name, option in zip(names, options, strict=True)
        if hints[name] is bool
    ]


def _with_debug(command, lists_few):
    """Return a command that has the flag `--debug` after its own flags."""
    fields = []
    if lists_few and command in (Train, Study):
        fields.append(("recipe", recipe_type(COMMON_RECIPES, with_auto=command is Train)))
    debug = Annotated[bool, tyro.conf.arg(help="Show the traceback of an error.")]
    fields.append(("debug", debug, False))
    namespace = {"__doc__": command.__doc__}
    return dataclasses.make_dataclass(
        command.__name__, fields, bases=(command,), namespace=namespace
    )
