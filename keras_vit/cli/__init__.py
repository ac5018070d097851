"""The command line `keras-vit`: one dataclass a command, whose fields are its flags."""

import contextlib
import importlib.util
import io
import logging
import os
import re
import sys
from typing import Annotated

import tyro

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
from keras_vit.cli.study import Study
from keras_vit.cli.train import Train
from keras_vit.cli.vtab import Vtab

Command = (
    Annotated[Quickstart, tyro.conf.subcommand("quickstart")]
    | Annotated[Models, tyro.conf.subcommand("models")]
    | Annotated[Checkpoints, tyro.conf.subcommand("checkpoints")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[InspectCheckpoint, tyro.conf.subcommand("inspect-checkpoint")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Deduplicate, tyro.conf.subcommand("deduplicate")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Fewshot, tyro.conf.subcommand("fewshot")]
    | Annotated[Study, tyro.conf.subcommand("study")]
    | Annotated[Vtab, tyro.conf.subcommand("vtab")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Client, tyro.conf.subcommand("client")]
)


def import_keras_quietly():
    """Imports Keras without the start-up notes of TensorFlow, which would bury the output."""
    # They are written past Python, and partly before TF_CPP_MIN_LOG_LEVEL is heeded.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        importlib.import_module("keras")
        if importlib.util.find_spec("tensorflow"):
            # Under another backend it is imported later, by the data.
            importlib.import_module("tensorflow")
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(silence)


def show_log():
    """Shows on the standard error what is adapted when weights are loaded."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("keras-vit: %(message)s"))
    logger = logging.getLogger("keras_vit")
    logger.setLevel(logging.INFO)
    # One handler, for the standard error of now.
    logger.handlers[:] = [handler]


def parse(args=None):
    """The command that the arguments ask for; those of the process by default.

    Of what tyro says of a mistake, in a box, the first part is shown, in a line.
    """
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(
                Command,
                prog="keras-vit",
                description="Vision Transformers for Keras 3.",
                args=args,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
            )
    except SystemExit:
        if box.getvalue():
            print(f"keras-vit: error: {first_part(box.getvalue())}; see --help", file=sys.stderr)
        raise


def first_part(box):
    """The words of a box between its title and its first rule, in a line."""
    # The rules are hyphens where there is no Unicode.
    part = re.split("─{4,}|-{4,}", box, maxsplit=2)[1]
    words = " ".join(part.replace("│", " ").strip("╮╯ \n").split())
    # What could have been meant is one of several types, none of which helps.
    return words.removeprefix("Error parsing recipe: ").partition(" Got errors:")[0].rstrip(".")


def _is_out_of_memory(error):
    """Whether NumPy or a backend, each of which has its own error, could not get memory."""
    texts = ("OOM when allocating", "RESOURCE_EXHAUSTED", "out of memory", "t allocate memory")
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def main(args=None):
    """Runs a command; errors of the user are one line, and exit with status 2."""
    command = None
    try:
        command = parse(args)
        import_keras_quietly()
        show_log()
        command.run()
    except BrokenPipeError:
        # The reader of our output has had enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        is_expected = isinstance(error, (ValueError, OSError, ImportError))
        if command.debug or not (is_expected or _is_out_of_memory(error)):
            raise
        what = "out of memory: " if _is_out_of_memory(error) else ""
        print(f"keras-vit: error: {what}{' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
