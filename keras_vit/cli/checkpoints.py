"""`keras-vit checkpoints`."""

import dataclasses
from typing import Annotated, ClassVar

import tyro


@dataclasses.dataclass
class Checkpoints:
    """List the published checkpoints.

    Example: keras-vit checkpoints b16 augreg
    """

    filter: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[WORD ...]")
    ] = ()
    """Words that the name or the address of a checkpoint must contain."""
    urls: bool = False
    """Print the addresses too."""
    markdown: bool = False
    """Print a Markdown table."""

    needs_keras: ClassVar[bool] = False

    def run(self):
        """Print the table."""
        from keras_vit.checkpoints.catalog import list_checkpoints
        from keras_vit.cli.tables import markdown_table, plain_table

        found = list_checkpoints(" ".join(self.filter))
        if not found:
            raise ValueError(
                "Each WORD must be a part of the name or address of a published checkpoint. "
                f"Received: {' '.join(self.filter)!r}, which matches none"
            )
        columns = ("name", "size", "classes", "top-1") + ("address",) * self.urls
        rows = [table_row(checkpoint)[: len(columns)] for checkpoint in found]
        print((markdown_table if self.markdown else plain_table)(columns, rows))


def table_row(checkpoint):
    """Return the cells of the row of a checkpoint."""
    classes = f"{checkpoint.num_classes}" + (" (zero)" if checkpoint.zero_head else "")
    accuracy = f"{checkpoint.accuracy:.2f}" if checkpoint.accuracy else "-"
    return checkpoint.name, f"{checkpoint.image_size}", classes, accuracy, checkpoint.url
