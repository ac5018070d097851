"""The program `keras-vit`: each command is a dataclass whose fields are its flags."""

import functools
import importlib.util
import logging
import operator
import os
import sys
import warnings
from typing import Annotated

import tyro
from tyro.conf import subcommand

from keras_vit.cli.benchmark import Benchmark
from keras_vit.cli.client import Client
from keras_vit.cli.convert import Convert
from keras_vit.cli.data import Data
from keras_vit.cli.deduplicate import Deduplicate
from keras_vit.cli.evaluate import Evaluate
from keras_vit.cli.export import Export
from keras_vit.cli.fewshot import Fewshot
from keras_vit.cli.inspect import Inspect
from keras_vit.cli.inspect_checkpoint import InspectCheckpoint
from keras_vit.cli.models import Checkpoints, Models
from keras_vit.cli.predict import Predict
from keras_vit.cli.quickstart import Quickstart
from keras_vit.cli.search import Search
from keras_vit.cli.study import Paper, Study
from keras_vit.cli.train import Resume, Train
from keras_vit.cli.vtab import Vtab
from keras_vit.core.machine import is_out_of_memory, without_stderr
from keras_vit.core.text import printable
from keras_vit.version import __version__

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
_DESCRIPTION = (
    "Vision Transformers for Keras 3. `keras-vit COMMAND --help` shows options and an example, "
    "and `keras-vit --version` prints the version. Start with `keras-vit quickstart`."
)


def main(args=None):
    """Run a command. An expected error is printed on one line, and the exit status is then 2."""
    if sys.stderr is None:
        # Standard error is closed. A file that is opened later would get the free descriptor 2, and
        # messages would be written to that file.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if not sys.stderr.isatty():
        # Update progress bars rarely: in a log file, each update adds a line. tqdm reads this
        # variable when it is imported.
        os.environ.setdefault("TQDM_MININTERVAL", "10")
    command = parse(args)
    show_log()
    try:
        if command.needs_keras:
            import_keras_quietly()
        command.run()
    except BrokenPipeError:
        # The program that reads the output stopped, as `head` does after some lines.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        is_expected = isinstance(error, (ValueError, OSError, ImportError))
        if command.debug or not (is_expected or is_out_of_memory(error)):
            raise
        text = printable(" ".join(str(error).split()))
        text = f"out of memory: {text:.200}" if is_out_of_memory(error) else text
        print(f"keras-vit: error: {text}", file=sys.stderr)
        sys.exit(2)


def parse(args=None):
    """Parse the arguments of a command, by default those in `sys.argv`."""
    args = list(sys.argv[1:] if args is None else args)
    if args == ["--version"]:
        print(f"keras-vit {__version__}")
        sys.exit()
    if args[:2] == ["study", "paper"]:
        # `study paper` is a separate command, because it shares no flag with the studies.
        args[:2] = ["study-paper"]
    # The list of commands shows the first lines of the docstrings. The help of a command shows the
    # whole docstring.
    summaries = {name: command.__doc__.partition("\n")[0] for name, command in COMMANDS.items()}
    types = (
        Annotated[command, subcommand(name, description=None if name in args else summaries[name])]
        for name, command in COMMANDS.items()
    )
    return tyro.cli(
        functools.reduce(operator.or_, types),
        prog="keras-vit",
        description=_DESCRIPTION,
        args=with_one_length(args),
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
    )


def with_one_length(args):
    """If only one of `--epochs` and `--steps` is given, set the other one to `None`.

    A recipe must have exactly one of them.

    Example:
    >>> with_one_length(["train", "finetune", "--epochs", "3"])
    ['train', 'finetune', '--epochs', '3', '--steps', 'None']
    """
    lengths = {word.partition("=")[0] for word in args} & {"--epochs", "--steps"}
    if len(lengths) != 1:
        return args
    return [*args, *({"--epochs", "--steps"} - lengths), "None"]


def import_keras_quietly():
    """Import Keras without the start-up messages of TensorFlow."""
    with without_stderr():
        importlib.import_module("keras")
        # JAX warns about every fork, and a thread of OpenVINO may fork at any time.
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        if importlib.util.find_spec("tensorflow"):
            # Otherwise reading data would import TensorFlow later, and show its messages.
            importlib.import_module("tensorflow")
            # Hide warnings about models that are called alternately, and about SavedModels without
            # gradients, which JAX writes. No command needs gradients of SavedModels.
            for name, text in (("tensorflow", "retracing"), ("absl", "unsaved custom gradients")):
                logging.getLogger(name).addFilter(functools.partial(_is_without, text))


def _is_without(text, record):
    return text not in record.getMessage()


class _Printable(logging.Formatter):
    """Escape control characters, which names of files and classes may contain."""

    def format(self, record):
        return "\n".join(map(printable, super().format(record).split("\n")))


class _FirstOfSkipped(logging.Filter):
    """Show only the first message about each skipped file: every pass over the data repeats it."""

    def __init__(self):
        super().__init__()
        self._shown = set()

    def filter(self, record):
        message = record.getMessage()
        is_new = message not in self._shown
        if message.startswith("skipped "):
            self._shown.add(message)
        return is_new


def show_log():
    """Write the log of the package, and warnings of other libraries, to standard error."""
    handler, of_libraries = logging.StreamHandler(), logging.StreamHandler()
    handler.setFormatter(_Printable("keras-vit: %(message)s"))
    handler.addFilter(_FirstOfSkipped())
    logger = logging.getLogger("keras_vit")
    logger.setLevel(logging.INFO)
    # Replace earlier handlers: they may write to a standard error that is closed.
    logger.handlers[:] = [handler]
    # Without a handler of the root logger, `logging.warning` in a library would add one that writes
    # the messages of this package a second time.
    of_libraries.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    of_libraries.setLevel(logging.WARNING)
    of_libraries.addFilter(lambda record: not record.name.startswith("keras_vit"))
    of_libraries.name = "keras-vit libraries"
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if handler.name != of_libraries.name]
    logging.basicConfig(handlers=[of_libraries])
