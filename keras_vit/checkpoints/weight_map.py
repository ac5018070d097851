"""Weight maps: tables of arrays in a file, the variables of the model, and the transforms."""

import dataclasses
import re

# Names of kernel and bias, or of scale and offset, in PyTorch.
TORCH_NAMES = ("weight", "bias")
# Names of the three input projections of attention.
QUERY_KEY_VALUE = ("query", "key", "value")
# Path of the variable of learned position embeddings.
POSITIONS = "position_embedding/embedding"
# Transforms of position embeddings, which `position_rows.py` fits to the model's tokens.
POSITION_TRANSFORMS = ("positions", "flat_positions")


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a weight map, for reading and for writing an array.

    Args:
        source: name of the array. `{i}` stands for the index of a block, `{n}` for the index plus
            1, `{s}` for a stage of a ResNet, and `{u}` for the number of a unit in its stage.
        target: path of a variable, or a tuple of paths, with `{i}`, or with `{s}` and `{u}`.
        transform: a name of `TRANSFORMS`.
    """

    source: str
    target: str | tuple[str, ...]
    transform: str = "identity"

    @property
    def targets(self):
        return (self.target,) if isinstance(self.target, str) else self.target


def layer(source, target, kernel="identity", bias="identity", names=("kernel", "bias")):
    """Return the rows of a layer's kernel and bias; `kernel` and `bias` name transforms."""
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
    """Return the rows of a PyTorch layer, by default a dense layer with a kernel `(out, in)`."""
    return layer(source, target, kernel, bias, TORCH_NAMES)


def attention(source, target, names):
    """Return the rows of an attention layer whose kernels have an axis of heads, as in Flax."""
    *inputs, output = names
    layers = [
        layer(f"{source}{name}/", f"{target}/{ours}", "to_heads", "heads_bias")
        for name, ours in zip(inputs, QUERY_KEY_VALUE, strict=True)
    ]
    layers.append(layer(f"{source}{output}/", f"{target}/output", "from_heads"))
    return tuple(row for rows in layers for row in rows)


def torch_norm(source, target):
    """Return the rows of a LayerNorm of PyTorch."""
    return norm(source, target, TORCH_NAMES)


def packed(source, target, names=QUERY_KEY_VALUE):
    """Return the rows of a PyTorch layer that concatenates several layers of `target`."""
    return (
        Row(f"{source}weight", tuple(f"{target}/{name}/kernel" for name in names), "split_dense"),
        Row(f"{source}bias", tuple(f"{target}/{name}/bias" for name in names), "split"),
    )


def renamer(pairs):
    """Return a function that replaces all patterns in a name, given pairs of pattern and text."""

    def rename(name):
        for pattern, text in pairs:
            name = re.sub(pattern, text, name)
        return name

    return rename


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """The name of an array in a file, and an index along axis 0 if the array stacks all blocks."""

    name: str
    index: int | None = None


@dataclasses.dataclass
class Naming:
    """The arrays of a file by their names in a weight map.

    Args:
        sources: the `StoredArray` of each name.
        shapes: the shape of each name's array.
        ignored: names of the arrays in the file that are not part of the model.
    """

    sources: dict[str, StoredArray]
    shapes: dict[str, tuple]
    ignored: list[str]

    @classmethod
    def of(cls, shapes, rename=lambda name: name, ignored="(?!)"):
        """Return a `Naming` of arrays, given their shapes by name in the file.

        `rename` is a function from a name in the file to the name in the weight map. Arrays are
        not part of the model if they are empty or their new names match the pattern `ignored`.
        """
        naming = cls({}, {}, [])
        for name, shape in shapes.items():
            # transformers saves an empty array for the registers of a model without registers.
            if re.match(ignored, rename(name)) or 0 in shape:
                naming.ignored.append(name)
            else:
                naming.add(rename(name), name, shape)
        return naming

    def add(self, name, stored_name, shape, index=None):
        """Add an array under a new name; raise a `ValueError` if the name is used already."""
        if name in self.sources:
            raise ValueError(
                "`path` must hold only one array for each variable. "
                f"Received: {self.sources[name].name!r} and {stored_name!r}, which are the same"
            )
        self.sources[name] = StoredArray(stored_name, index)
        self.shapes[name] = tuple(shape)

    def with_prefix(self, prefix, others):
        """Return the same arrays for a file in which their names have a prefix.

        `others` are the names in the file without this prefix, which are ignored.
        """
        sources = {
            name: dataclasses.replace(source, name=prefix + source.name)
            for name, source in self.sources.items()
        }
        ignored = [*(prefix + name for name in self.ignored), *others]
        return Naming(sources, self.shapes, ignored)

    def renamed(self, rename):
        """Return the same arrays under other names."""
        naming = Naming({}, {}, self.ignored)
        for name, source in self.sources.items():
            naming.add(rename(name), source.name, self.shapes[name], source.index)
        return naming


def finder(markers, prefixes, ignored="(?!)", absent=(), rename=lambda name: name):
    """Return a function for `Format.find`.

    Args:
        markers: names of arrays that a file must have, without the prefix.
        prefixes: possible prefixes of the names.
        ignored: pattern of the names of arrays that are not part of the model. The default matches
            nothing.
        absent: names of arrays that a file must not have, without the prefix.
        rename: function from a name without the prefix to the name in the weight map.
    """

    def find(shapes):
        for prefix in prefixes:
            names = {name: rename(name.removeprefix(prefix)) for name in shapes}
            model = {ours for name, ours in names.items() if name.startswith(prefix)}
            if model.issuperset(markers) and model.isdisjoint(absent):
                return Naming.of(shapes, names.get, ignored)
        return None

    return find


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of a weight map, with the indices filled in, for one array and its variables."""

    source: str
    targets: tuple[str, ...]
    transform: str


def entries(rows, paths):
    """Apply the rows of a weight map to the paths of a model's variables.

    Return a list of `Entry`, and a list of the paths without a row.
    """
    by_target = {target: row for row in rows for target in row.targets}
    mapped, unmapped = {}, []
    present = set(paths)
    for path in paths:
        template, indices = template_of(path)
        row = by_target.get(template)
        targets = tuple(target.format(**indices) for target in row.targets) if row else ()
        # An array may hold several variables. Its row does not fit a model that lacks one of them.
        if row is None or not present.issuperset(targets):
            unmapped.append(path)
            continue
        source = row.source.format(**indices)
        mapped[source] = Entry(source, targets, row.transform)
    return list(mapped.values()), unmapped


def template_of(path):
    """Replace the indices in a path by `{i}`, or `{s}` and `{u}`; return path and indices."""
    if block := re.match(r"(block|position_embedding)_(\d+)/", path):
        i = int(block[2])
        return path.replace(block[0], f"{block[1]}_{{i}}/", 1), {"i": i, "n": i + 1}
    if unit := re.match(r"stage_(\d+)_unit_(\d+)/", path):
        indices = {"s": int(unit[1]), "u": int(unit[2])}
        return path.replace(unit[0], "stage_{s}_unit_{u}/", 1), indices
    return path, {}
