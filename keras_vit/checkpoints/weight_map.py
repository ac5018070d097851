"""Weight maps: which array of a file is which variable of the model."""

import dataclasses
import re
from collections.abc import Callable

from keras_vit.checkpoints.transforms import TRANSFORMS


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a weight map, read in both directions.

    Args:
        source: name of the array; `{i}` stands for a block's index, `{n}` for its number from 1.
        target: path of the variable, or paths of the variables, with `{i}`.
        transform: a name of `TRANSFORMS`.
    """

    source: str
    target: str | tuple[str, ...]
    transform: str = "identity"

    @property
    def targets(self):
        return (self.target,) if isinstance(self.target, str) else self.target


@dataclasses.dataclass(frozen=True)
class Format:
    """A layout of checkpoint files.

    Args:
        name: what `format=` calls it.
        rows: its weight map.
        find: from the shapes of a file's arrays by name to `Naming`, or `None` if the file is of
            another format.
        describe: from `shape_of` (see `architecture.py`), the file's configuration and the number
            of heads asked for, to the options of `vision_transformer`, without `image_size`.
        prefix_rows: from the number of tokens before the patches (class token, registers) to the
            numbers of rows that their positions may have in a table (see `position_rows`).
        interpolation: how its project resizes position embeddings.
    """

    name: str
    rows: tuple[Row, ...]
    find: Callable
    describe: Callable
    prefix_rows: Callable = lambda num_tokens: (num_tokens,)
    interpolation: str = "bilinear"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where an array is: in the file under a name, whole or one slice of stacked blocks."""

    name: str
    index: int | None = None


@dataclasses.dataclass
class Naming:
    """A file's arrays under the names of a format.

    Args:
        sources: where each array is, by name.
        shapes: its shape, by name.
        ignored: the file's names that are no part of the model, such as an optimizer's state.
    """

    sources: dict[str, Source]
    shapes: dict[str, tuple]
    ignored: list[str]

    def add(self, name, source, shape):
        self.sources[name] = source
        self.shapes[name] = tuple(shape)

    def renamed(self, rename):
        """The same arrays under other names."""
        return Naming(
            {rename(name): source for name, source in self.sources.items()},
            {rename(name): shape for name, shape in self.shapes.items()},
            self.ignored,
        )


def two(source, target, kernel="identity", bias="identity", names=("kernel", "bias")):
    """The rows of a layer's kernel and bias."""
    return (
        Row(f"{source}{names[0]}", f"{target}/kernel", kernel),
        Row(f"{source}{names[1]}", f"{target}/bias", bias),
    )


def norm(source, target, names=("scale", "bias")):
    """The rows of a LayerNorm."""
    return Row(f"{source}{names[0]}", f"{target}/gamma"), Row(
        f"{source}{names[1]}", f"{target}/beta"
    )


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row that belongs to certain variables: the array's name and the variables' paths."""

    source: str
    targets: tuple[str, ...]
    transform: str


def entries(rows, paths):
    """The entries of a weight map for a model's variables, and the paths that have none.

    Args:
        rows: the weight map.
        paths: of the variables.

    Returns:
        A list of `Entry`, and a list of paths.
    """
    by_target = {target: row for row in rows for target in row.targets}
    found, without_row = {}, []
    for path in paths:
        index = re.search(r"\bblock_(\d+)/", path)
        template = path.replace(index[0], "block_{i}/", 1) if index else path
        row = by_target.get(template)
        if row is None:
            without_row.append(path)
            continue
        i = int(index[1]) if index else 0
        source = row.source.format(i=i, n=i + 1)
        targets = tuple(target.format(i=i) for target in row.targets)
        found[source] = Entry(source, targets, row.transform)
    return list(found.values()), without_row


def as_markdown(rows):
    """The weight map as a table for the documentation."""
    lines = ["| array in the file | variable of the model | layout |", "| --- | --- | --- |"]
    for row in rows:
        targets = ", ".join(f"`{target}`" for target in row.targets)
        lines.append(f"| `{row.source}` | {targets} | {TRANSFORMS[row.transform].meaning} |")
    return "\n".join(lines)
