"""Base classes, arguments, tables and checks that several commands use."""

import dataclasses
import pathlib
from typing import Annotated, ClassVar, Literal

import tyro

from keras_vit.core.text import printable

ModelArgument = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="MODEL",
        help="A run's directory (its best model), a .keras file, or a checkpoint as in `convert`.",
    ),
]
ImageArguments = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="IMAGE [IMAGE ...]", help_behavior_hint="(required)"),
]
# Names of dtype policies.
Policy = Literal["float32", "mixed_bfloat16", "mixed_float16"]
ImageSize = Annotated[
    int | tuple[int, int] | None,
    tyro.conf.arg(
        metavar="INT [INT]",
        help="Image size: one number, or height and width. A model of another size is resized. "
        "Needed for a file that does not record an image size.",
    ),
]


@dataclasses.dataclass(kw_only=True)
class Command:
    """The base class of all commands.

    Args:
        debug: show the traceback of an error.
    """

    debug: bool = False

    needs_keras: ClassVar[bool] = True


@dataclasses.dataclass(kw_only=True)
class Table(Command):
    """A command that prints tables, with all columns but the first aligned to the right.

    Args:
        markdown: print tables as Markdown.
    """

    markdown: bool = False

    def print_table(self, columns, rows):
        """Print rows of strings."""
        print((markdown_table if self.markdown else plain_table)(columns, list(rows)))


@dataclasses.dataclass(kw_only=True)
class Reading(Command):
    """A command that runs a model on a dataset.

    Args:
        batch_size: number of images in each call of the model.
        classes: classes to keep; by default the classes of the run, or all.
        data_dir: directory of TensorFlow Datasets.
        central_crop_from: resize the smaller side to this number of pixels and crop the center, as
            big_vision does. By default the whole image is resized, as in the paper.
        max_skipped: greatest share of images that may be skipped because they cannot be decoded.
        upright: turn photographs upright by their EXIF orientation. Runs trained with `--upright`
            always do so.
    """

    batch_size: int = 32
    classes: tuple[str, ...] | None = None
    data_dir: pathlib.Path | None = None
    image_size: ImageSize = None
    central_crop_from: int | None = None
    max_skipped: float = 0.1
    upright: bool = False


def plain_table(columns, rows):
    """Return rows of strings as text in aligned columns."""
    lines = [list(map(printable, line)) for line in (columns, *rows)]
    first, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(first), *map(str.rjust, cells, widths)]) for name, *cells in lines
    )


def markdown_table(columns, rows):
    """Return rows of strings as a Markdown table."""
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows))


def check_new_file(path, suffix):
    """Raise `ValueError`, before hours of work, if a file exists or could not be written."""
    path = pathlib.Path(path).expanduser()
    if path.suffix != suffix or path.exists() or not path.parent.is_dir():
        raise ValueError(
            f"A file to be written must be a new {suffix} file in a folder that exists. "
            f"Received: {str(path)!r}"
        )


def evenly_spaced(items, count):
    """Return at most `count` items of a list, at equal distances."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def as_shard(text):
    """Return `I/N`, which counts from 1, as `(index, count)`, which counts from 0."""
    index, slash, count = text.partition("/")
    is_pair = slash and index.isdecimal() and count.isdecimal()
    if not is_pair or not 1 <= int(index) <= int(count):
        raise ValueError(f"`--shard` must be I/N with 1 <= I <= N. Received: {text!r}")
    return int(index) - 1, int(count)
