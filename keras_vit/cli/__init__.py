"""The command line `keras-vit`: one dataclass a command, whose fields are its flags."""

import os
import sys
from typing import Annotated

import tyro

from keras_vit.cli.evaluate import Evaluate
from keras_vit.cli.export import Export
from keras_vit.cli.models import Models
from keras_vit.cli.predict import Predict
from keras_vit.cli.quickstart import Quickstart
from keras_vit.cli.train import Train

Command = (
    Annotated[Quickstart, tyro.conf.subcommand("quickstart")]
    | Annotated[Models, tyro.conf.subcommand("models")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Export, tyro.conf.subcommand("export")]
)


def main(args=None):
    """Runs a command; errors of the user are one line, and exit with status 2."""
    command = tyro.cli(
        Command,
        prog="keras-vit",
        description="Vision Transformers for Keras 3.",
        args=args,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
    )
    # TensorFlow's start-up notes would bury the output.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        command.run()
    except (ValueError, OSError) as error:
        if command.debug:
            raise
        print(f"keras-vit: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
