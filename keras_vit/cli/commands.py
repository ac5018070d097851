"""The commands as types of tyro, whose help fits a screen."""

import functools
import itertools
import operator
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
from keras_vit.cli.resume import Resume
from keras_vit.cli.search import Search
from keras_vit.cli.study import Study
from keras_vit.cli.study_paper import Paper
from keras_vit.cli.train import COMMON_RECIPES, Train, recipe_type
from keras_vit.cli.usage import (
    arguments,
    describe_arguments,
    describe_command,
    with_fields,
    with_paragraphs,
)
from keras_vit.cli.vtab import Vtab
from keras_vit.training.recipes import RECIPES

COMMANDS = {
    "quickstart": Quickstart,
    "models": Models,
    "checkpoints": Checkpoints,
    "convert": Convert,
    "inspect-checkpoint": InspectCheckpoint,
    "data": Data,
    "deduplicate": Deduplicate,
    "train": Train,
    "resume": Resume,
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


def command_type(args):
    """Return the type of all commands for a list of arguments.

    Commands other than the one in the arguments are described by one line. For the short help,
    which hides what options do, the arguments that are needed are in the description of the
    command, and only common recipes are listed.
    """
    before_help = list(itertools.takewhile(lambda word: word not in ("-h", "--help"), args))
    is_short_help = len(before_help) < len(args)
    types = []
    for name, command in COMMANDS.items():
        description, recipes = command.__doc__.partition("\n")[0], None
        if name in args:
            description = describe_command(command) if is_short_help else None
            recipes = _recipes_for_help(command, before_help) if is_short_help else None
        about = tyro.conf.subcommand(name, description=description)
        shown = command
        if {"-H", "--help-verbose"} & {*args}:
            shown = with_paragraphs(command)
        types.append(Annotated[_with_debug(shown, recipes), about])
    return functools.reduce(operator.or_, types)


def _recipes_for_help(command, words):
    """Return the type of the recipes for the help of a command or of one of its recipes.

    `None` for a command without a choice of recipes.
    """
    if command not in (Train, Study):
        return None
    named = {"auto", *RECIPES} & {*words}
    if not named:
        return recipe_type(COMMON_RECIPES, with_auto=command is Train)
    options = [argument for argument in arguments(command) if not argument.is_positional]
    note = f"\n\n{describe_arguments(options)}\n"
    names = named - {"auto"} or COMMON_RECIPES
    return recipe_type(names, with_auto=command is Train, note=note)


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


def _with_debug(command, recipes):
    """Return a command that has the flag `--debug` after its own, and perhaps other recipes."""
    fields = [] if recipes is None else [("recipe", recipes)]
    debug = Annotated[bool, tyro.conf.arg(help="Show the traceback of an error.")]
    fields.append(("debug", debug, False))
    return with_fields(command, fields)
