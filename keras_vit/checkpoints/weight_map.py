"""Weight maps: the array of a file for each variable of the model."""

import dataclasses
import re

# Names of kernel and bias, or of scale and offset, in PyTorch.
TORCH_NAMES = ("weight", "bias")
# Names of the layers of queries, keys and values.
QUERY_KEY_VALUE = ("query", "key", "value")
# Path of the variable of learned position embeddings.
POSITIONS = "position_embedding/embedding"
# Transforms of the arrays that `positions.py` adapts to the tokens and the grid of the model.
POSITION_TRANSFORMS = ("positions", "flat_positions")


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a weight map, used for reading and for writing.

    Args:
        source: name of the array; `{i}` stands for the index of a block, `{n}` for its number from
            1, `{s}` and `{u}` for the stage and the number of a residual unit.
        target: path of the variable, or paths of the variables, with `{i}`, or `{s}` and `{u}`.
        transform: a name of `TRANSFORMS`.
    """

    source: str
    target: str | tuple[str, ...]
    transform: str = "identity"

    @property
    def targets(self):
        return (self.target,) if isinstance(self.target, str) else self.target


def two(source, target, kernel="identity", bias="identity", names=("kernel", "bias")):
    """Return the rows of a layer's kernel and bias."""
    return (
        Row(f"{source}{names[0]}", f"{target}/kernel", kernel),
        Row(f"{source}{names[1]}", f"{target}/bias", bias),
    )


def norm(source, target, names=("scale", "bias"), transform="identity"):
    """Return the rows of a LayerNorm or a GroupNorm."""
    return (
        Row(f"{source}{names[0]}", f"{target}/gamma", transform),
        Row(f"{source}{names[1]}", f"{target}/beta", transform),
    )


def torch_layer(source, target, kernel="dense", bias="identity"):
    """Return the rows of a layer whose kernel is PyTorch's, by default `(outputs, inputs)`."""
    return two(source, target, kernel, bias, TORCH_NAMES)


def heads(source, target, names):
    """Return the rows of four projections whose kernels have an axis of heads, as in Flax."""
    *inputs, output = names
    rows = [
        two(f"{source}{name}/", f"{target}/{ours}", "to_heads", "heads_bias")
        for name, ours in zip(inputs, QUERY_KEY_VALUE, strict=True)
    ]
    rows.append(two(f"{source}{output}/", f"{target}/output", "from_heads"))
    return tuple(row for pair in rows for row in pair)


def torch_norm(source, target):
    """Return the rows of a LayerNorm of PyTorch."""
    return norm(source, target, TORCH_NAMES)


def packed(source, target, names=QUERY_KEY_VALUE):
    """Return the rows of PyTorch's kernel and bias for several layers of `target`."""
    return (
        Row(f"{source}weight", tuple(f"{target}/{name}/kernel" for name in names), "split_dense"),
        Row(f"{source}bias", tuple(f"{target}/{name}/bias" for name in names), "split"),
    )


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """Where an array is stored: under a name, whole or as one slice of stacked blocks."""

    name: str
    index: int | None = None


@dataclasses.dataclass
class Naming:
    """The arrays of a file under the names that a weight map has for them.

    `sources` are their places in the file; `ignored` arrays are not part of the model.
    """

    sources: dict[str, StoredArray]
    shapes: dict[str, tuple]
    ignored: list[str]

    @classmethod
    def of(cls, shapes, rename=lambda name: name, ignored="(?!)"):
        """Return the arrays of these shapes under the names that `rename` gives them.

        Arrays whose new names match the pattern `ignored`, and empty arrays, are left out.
        """
        naming = cls({}, {}, [])
        for name, shape in shapes.items():
            # transformers has an array of no registers.
            if re.match(ignored, rename(name)) or 0 in shape:
                naming.ignored.append(name)
            else:
                naming.add(rename(name), StoredArray(name), shape)
        return naming

    def add(self, name, source, shape):
        """Add an array; raise a `ValueError` if there is one of that name."""
        if name in self.sources:
            raise ValueError(
                "`path` must hold one array for each variable. "
                f"Received: {self.sources[name].name!r} and {source.name!r}, which are the same"
            )
        self.sources[name] = source
        self.shapes[name] = tuple(shape)

    def within(self, prefix):
        """Return the same arrays of a file whose names have a prefix."""
        sources = {
            name: dataclasses.replace(source, name=prefix + source.name)
            for name, source in self.sources.items()
        }
        return Naming(sources, self.shapes, [prefix + name for name in self.ignored])

    def renamed(self, rename):
        """Return the same arrays under other names."""
        naming = Naming({}, {}, self.ignored)
        for name, source in self.sources.items():
            naming.add(rename(name), source, self.shapes[name])
        return naming


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row for certain variables: the name of the array and the paths of the variables."""

    source: str
    targets: tuple[str, ...]
    transform: str


def entries(rows, paths):
    """Apply a weight map to the paths of a model's variables.

    Return a list of `Entry`, and a list of the paths for which there is no row.
    """
    by_target = {target: row for row in rows for target in row.targets}
    found, without_row = {}, []
    present = set(paths)
    for path in paths:
        template, indices = template_of(path)
        row = by_target.get(template)
        targets = tuple(target.format(**indices) for target in row.targets) if row else ()
        # One array may hold several variables, and the model may lack one of them.
        if row is None or not present.issuperset(targets):
            without_row.append(path)
            continue
        source = row.source.format(**indices)
        found[source] = Entry(source, targets, row.transform)
    return list(found.values()), without_row


def template_of(path):
    """Return the path with `{i}`, or `{s}` and `{u}`, for its numbers, and the numbers."""
    if block := re.match(r"(block|position_embedding)_(\d+)/", path):
        i = int(block[2])
        return path.replace(block[0], f"{block[1]}_{{i}}/", 1), {"i": i, "n": i + 1}
    if unit := re.match(r"stage_(\d+)_unit_(\d+)/", path):
        indices = {"s": int(unit[1]), "u": int(unit[2])}
        return path.replace(unit[0], "stage_{s}_unit_{u}/", 1), indices
    return path, {}
