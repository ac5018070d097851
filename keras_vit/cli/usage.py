"""The arguments that a user of a command must know, for its short help and for errors."""

import ast
import dataclasses
import inspect
import itertools
import shutil
import textwrap
import typing
from typing import Annotated

import tyro

# Options whose value may be the name of a recipe: a directory, and the strategy `auto`.
_NAMED_AS_A_RECIPE = ("--workdir", "--strategy")


@dataclasses.dataclass(frozen=True)
class Argument:
    """A positional argument of a command, or an option that it needs.

    Args:
        field: name of the field of the dataclass.
        name: name in help and errors: `MODEL`, `[IMAGE ...]`, `--workdir`.
        is_required: whether it must be given.
        help: what it is.
    """

    field: str
    name: str
    is_required: bool
    help: str

    @property
    def is_positional(self):
        """Whether it is given without a flag."""
        return not self.name.startswith("--")

    @property
    def usage(self):
        """How it is given."""
        return self.name if self.is_positional else f"{self.name} {self.field.upper()}"


def arguments(command):
    """Return the positional arguments of a command, then the options that it needs.

    Args:
        command: a dataclass.

    Returns:
        A list of `Argument`. A recipe that must be named is one of them.

    Example:
    >>> from keras_vit.cli.client import Client
    >>> [argument.usage for argument in arguments(Client)]
    ['IMAGE [IMAGE ...]', '--url URL']
    """
    hints = typing.get_type_hints(command, include_extras=True)
    docs, found = _field_docs(command), []
    for field in dataclasses.fields(command):
        metadata = getattr(hints[field.name], "__metadata__", ())
        # The one of `tyro.conf.arg`.
        config = next((each for each in metadata if hasattr(each, "metavar")), None)
        is_required = field.default is dataclasses.MISSING
        if tyro.conf.Positional in metadata:
            name = config.metavar
        elif field.name == "recipe":
            name = "RECIPE"
        else:
            name = f"--{field.name.replace('_', '-')}"
        if is_required or tyro.conf.Positional in metadata:
            # Zero or more values.
            is_required = is_required and not name.startswith("[")
            about = docs.get(field.name) or config.help
            found.append(Argument(field.name, name, is_required, about))
    return sorted(found, key=lambda argument: not argument.is_positional)


def _field_docs(command):
    """Return the docstrings after the fields of a dataclass, one line each."""
    (definition,) = ast.parse(inspect.getsource(command)).body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def with_paragraphs(command):
    """Return a command whose help has one paragraph per option.

    Tyro would keep the line ends of the source.
    """
    hints, docs = typing.get_type_hints(command, include_extras=True), _field_docs(command)
    fields = []
    for field in dataclasses.fields(command):
        if field.name in docs:
            described = Annotated[hints[field.name], tyro.conf.arg(help=docs[field.name])]
            fields.append((field.name, described, dataclasses.field(default=field.default)))
    return with_fields(command, fields)


def with_fields(command, fields):
    """Return a command with other fields, as of `dataclasses.make_dataclass`."""
    namespace = {"__doc__": command.__doc__}
    return dataclasses.make_dataclass(
        command.__name__, fields, bases=(command,), namespace=namespace
    )


def usage(name, command):
    """Return how a command is used.

    Options come last: one with several values would take the positional arguments after it.

    Example:
    >>> from keras_vit.cli.predict import Predict
    >>> usage("predict", Predict)
    'keras-vit predict MODEL IMAGE [IMAGE ...] [options]'
    """
    words = [argument.usage for argument in arguments(command)]
    return " ".join(["keras-vit", name.replace("study-", "study "), *words, "[options]"])


def describe_command(command):
    """Return the description of a command for its short help, which describes no other options."""
    *paragraphs, example = inspect.cleandoc(command.__doc__).split("\n\n")
    texts = [*paragraphs, describe_arguments(arguments(command)), example]
    return "\n\n".join(filter(None, texts))


def describe_arguments(shown):
    """Return a table of `Argument`s with the first sentences of their help."""
    width = max((len(argument.name) for argument in shown), default=0) + 2
    lines = [
        textwrap.fill(
            argument.help.partition(". ")[0].rstrip(".") + ".",
            width=shutil.get_terminal_size().columns,
            initial_indent=f"  {argument.name:<{width}}",
            subsequent_indent=" " * (width + 2),
            break_on_hyphens=False,
            break_long_words=False,
        )
        for argument in shown
    ]
    return "\n".join(lines)


def options_of(command):
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


def names_recipe(words, recipes):
    """Return whether the words of a command name one of the recipes.

    Example:
    >>> names_recipe(["train", "finetune"], {"auto", "finetune"})
    True
    >>> names_recipe(["train", "--strategy", "auto"], {"auto", "finetune"})
    False
    """
    pairs = zip(["", *words], words, strict=False)
    return any(word in recipes and option not in _NAMED_AS_A_RECIPE for option, word in pairs)
