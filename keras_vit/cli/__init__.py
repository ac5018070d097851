"""The command line `keras-vit`: one dataclass per command, whose fields are its flags."""

import contextlib
import importlib.util
import io
import logging
import os
import sys
import warnings

import tyro

from keras_vit.cli.commands import command_type, with_one_length
from keras_vit.cli.flags import with_option
from keras_vit.cli.metavars import OPTIONAL_TYPES
from keras_vit.cli.mistakes import (
    check_command,
    check_recipe,
    describe_mistake,
    install_hint,
    memory_hint,
)
from keras_vit.core.process import is_out_of_memory, without_stderr
from keras_vit.core.text import printable
from keras_vit.version import __version__

_DESCRIPTION = (
    "Vision Transformers for Keras 3. `keras-vit COMMAND --help` shows options and an example, "
    "`--help-verbose` what each option does, and `keras-vit --version` prints the version. "
    "Start with `keras-vit quickstart`."
)
# Name of the handler of other libraries' warnings.
_OTHERS = "keras-vit others"


def import_keras_quietly():
    """Import Keras without the start-up messages of TensorFlow."""
    with without_stderr():
        importlib.import_module("keras")
        # JAX warns of any fork. Commands do not fork, but a thread of OpenVINO does, at any time.
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        if importlib.util.find_spec("tensorflow"):
            # Under another backend the data would import it later.
            importlib.import_module("tensorflow")
            logging.getLogger("tensorflow").addFilter(_is_not_of_retracing)
            logging.getLogger("absl").addFilter(_is_not_of_gradients)


def _is_not_of_retracing(record):
    # TensorFlow warns every time that models are called in turn.
    return "retracing" not in record.getMessage()


def _is_not_of_gradients(record):
    # A SavedModel that JAX wrote has no gradients; no command asks for them.
    return "unsaved custom gradients" not in record.getMessage()


class _Printable(logging.Formatter):
    """Escape control characters, such as those of the names of files and classes."""

    def format(self, record):
        return "\n".join(map(printable, super().format(record).split("\n")))


class _FirstOfSkipped(logging.Filter):
    """Show once that a file is skipped: each pass over the data finds it again."""

    def __init__(self):
        super().__init__()
        self._shown = set()

    def filter(self, record):
        message = record.getMessage()
        if not message.startswith("skipped "):
            return True
        is_new = message not in self._shown
        self._shown.add(message)
        return is_new


def show_log():
    """Write the log of the package, and warnings of other libraries, to the standard error."""
    handler, others = logging.StreamHandler(), logging.StreamHandler()
    handler.setFormatter(_Printable("keras-vit: %(message)s"))
    handler.addFilter(_FirstOfSkipped())
    logger = logging.getLogger("keras_vit")
    logger.setLevel(logging.INFO)
    # An earlier handler may hold a standard error that is closed.
    logger.handlers[:] = [handler]
    # Otherwise `logging.warning` in a library would add a handler that writes our lines again.
    others.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    others.setLevel(logging.WARNING)
    others.addFilter(lambda record: not record.name.startswith("keras_vit"))
    others.name = _OTHERS
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if handler.name != _OTHERS]
    logging.basicConfig(handlers=[others])


def parse(args=None):
    """Parse the arguments of a command, by default those of the process.

    Tyro's error box is shown as one line.
    """
    box, args = io.StringIO(), sys.argv[1:] if args is None else args
    if args[:2] == ["study", "paper"]:
        # It trains nothing, and has none of the arguments of the studies.
        args[:2] = ["study-paper"]
    if args == ["--version"]:
        print(f"keras-vit {__version__}")
        sys.exit()
    check_command(args)
    check_recipe(args)
    args = with_one_length(args)
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(
                command_type(args),
                prog="keras-vit",
                description=_DESCRIPTION,
                args=args,
                compact_help=True,
                registry=OPTIONAL_TYPES,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
            )
    except SystemExit:
        if box.getvalue():
            print(f"keras-vit: error: {describe_mistake(args, box.getvalue())}", file=sys.stderr)
        raise


def main(args=None):
    """Run a command. Errors of the user are printed as one line, and the exit status is 2."""
    command = None
    if sys.stderr is None:
        # It is closed: a file that is opened later would get its number, and what is written to it.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if not sys.stderr.isatty():
        # In a log file, each update of a progress bar is a line; tqdm reads this when it is
        # imported.
        os.environ.setdefault("TQDM_MININTERVAL", "10")
    try:
        command = parse(args)
        show_log()
        if getattr(command, "needs_keras", True):
            import_keras_quietly()
        command.run()
    except BrokenPipeError:
        # The reader of the output stopped reading, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        is_expected = isinstance(error, (ValueError, OSError, ImportError))
        if getattr(command, "debug", False) or not (is_expected or is_out_of_memory(error)):
            raise
        text = " ".join(str(error).split())
        text = text if command is None else with_option(text, command)
        text += install_hint(error)
        if is_out_of_memory(error):
            text = f"out of memory{memory_hint(command)}: {text:.200}"
        print(f"keras-vit: error: {printable(text)}", file=sys.stderr)
        sys.exit(2)
