"""Weight maps: which array of a file is which variable of the model."""

import dataclasses
import re
from collections.abc import Callable

from keras_vit.checkpoints.transforms import TRANSFORMS


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a weight map, read in both directions.

    Args:
        source: name of the array; `{i}` stands for a block's index, `{n}` for its number from 1,
            `{s}` and `{u}` for the numbers of a residual unit's stage and of the unit in it.
        target: path of the variable, or paths of the variables, with `{i}`, or `{s}` and `{u}`.
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
            another format; not needed for models in memory, whose project is known.
        describe: from `shape_of` (see `architecture.py`), the file's configuration and the number
            of heads asked for, to the options of `vision_transformer` or `resnet`, without
            `image_size`.
        prefix_rows: from the number of tokens before the patches (class token, registers) and
            `shape_of` to the numbers of rows that their positions may have (see `position_rows`).
        interpolation: how its project resizes position embeddings.
    """

    name: str
    rows: tuple[Row, ...]
    find: Callable | None = None
    describe: Callable | None = None
    prefix_rows: Callable = lambda num_tokens, shape_of: (num_tokens,)
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

    @classmethod
    def of(cls, shapes, rename=lambda name: name):
        """The arrays of these shapes, each under the name that `rename` gives it."""
        naming = cls({}, {}, [])
        for name, shape in shapes.items():
            naming.add(rename(name), Source(name), shape)
        return naming

    def add(self, name, source, shape):
        """Adds an array; raises a `ValueError` if there is one of that name."""
        if name in self.sources:
            raise ValueError(
                "`path` must hold one array for each variable. "
                f"Received: {self.sources[name].name!r} and {source.name!r}, which are the same"
            )
        self.sources[name] = source
        self.shapes[name] = tuple(shape)

    def renamed(self, rename):
        """The same arrays under other names."""
        naming = Naming({}, {}, self.ignored)
        for name, source in self.sources.items():
            naming.add(rename(name), source, self.shapes[name])
        return naming


def two(source, target, kernel="identity", bias="identity", names=("kernel", "bias")):
    """The rows of a layer's kernel and bias."""
    return (
        Row(f"{source}{names[0]}", f"{target}/kernel", kernel),
        Row(f"{source}{names[1]}", f"{target}/bias", bias),
    )


def norm(source, target, names=("scale", "bias"), transform="identity"):
    """The rows of a LayerNorm or a GroupNorm."""
    return (
        Row(f"{source}{names[0]}", f"{target}/gamma", transform),
        Row(f"{source}{names[1]}", f"{target}/beta", transform),
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
        template, indices = template_of(path)
        row = by_target.get(template)
        if row is None:
            without_row.append(path)
            continue
        source = row.source.format(**indices)
        targets = tuple(target.format(**indices) for target in row.targets)
        found[source] = Entry(source, targets, row.transform)
    return list(found.values()), without_row


def template_of(path):
    """The path with `{i}`, or `{s}` and `{u}`, for its numbers, and what these are."""
    if block := re.match(r"block_(\d+)/", path):
        i = int(block[1])
        return path.replace(block[0], "block_{i}/", 1), {"i": i, "n": i + 1}
    if unit := re.match(r"stage_(\d+)_unit_(\d+)/", path):
        indices = {"s": int(unit[1]), "u": int(unit[2])}
        return path.replace(unit[0], "stage_{s}_unit_{u}/", 1), indices
    return path, {}


def as_markdown(rows):
    """The weight map as a table for the documentation."""
    lines = ["| array in the file | variable of the model | layout |", "| --- | --- | --- |"]
    for row in rows:
        targets = ", ".join(f"`{target}`" for target in row.targets)
        lines.append(f"| `{row.source}` | {targets} | {TRANSFORMS[row.transform].meaning} |")
    return "\n".join(lines)
