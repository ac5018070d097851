"""`keras-vit checkpoints`."""

import dataclasses
from typing import Annotated, ClassVar

import tyro

from keras_vit.cli.arguments import Table


@dataclasses.dataclass
class Checkpoints(Table):
    """List the published checkpoints.

    Example: keras-vit checkpoints b16 augreg

    Args:
        filter: words that the name or the address of a checkpoint must contain.
        urls: print the addresses too.
    """

    filter: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[WORD ...]")
    ] = ()
    urls: bool = False

    needs_keras: ClassVar[bool] = False

    def run(self):
        """Print the table."""
        from keras_vit.checkpoints.catalog import list_checkpoints

        columns = ("name", "size", "classes", "top-1") + ("address",) * self.urls
        found = list_checkpoints(" ".join(self.filter))
        self.print_table(columns, (table_row(row)[: len(columns)] for row in found))


def table_row(checkpoint):
    """Return the cells of the row of a checkpoint."""
    classes = f"{checkpoint.num_classes}" + (" (zero)" if checkpoint.zero_head else "")
    accuracy = f"{checkpoint.accuracy:.2f}" if checkpoint.accuracy else "-"
    return checkpoint.name, f"{checkpoint.image_size}", classes, accuracy, checkpoint.url
