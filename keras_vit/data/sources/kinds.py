"""The kinds of datasets that `load` finds by name, beside those of the paper.

The table itself needs neither Keras nor TensorFlow.
"""

import dataclasses
import importlib
import pathlib

# Prefix of datasets divided as in versions before 0.2.
BY_POSITION = "by-position:"


@dataclasses.dataclass(frozen=True)
class SourceKind:
    """A kind of dataset: its name and the function that finds its examples.

    Args:
        name: the name of the dataset, or what stands before its colon.
        function: `module:function` in this folder. It takes what stands after the colon, if
            anything does, the split, and `shard`, and returns a `Source`.
        options: arguments of `find_source` that the function also takes: `classes`, `data_dir`, or
            `by_position`, the division of versions before 0.2.
        argument: what stands after the colon, in help and errors; `None` for nothing.
        is_path: whether it is a path: then it is made absolute in records, and `train` warns of
            copies of images in two splits.
        is_digested: whether results record a digest of the images, to detect changes. To find it,
            all of them are read.
    """

    name: str
    function: str
    options: tuple[str, ...] = ()
    argument: str | None = None
    is_path: bool = False
    is_digested: bool = True

    @property
    def pattern(self):
        """The names of this kind, in help and errors."""
        return self.name if self.argument is None else f"{self.name}:{self.argument}"

    def find(self, argument, split, **options):
        """Return the `Source` of a split."""
        module, _, function = self.function.partition(":")
        find = getattr(importlib.import_module(f"keras_vit.data.sources.{module}"), function)
        return find(*[argument] * (self.argument is not None), split, **options)


# To add a kind, add a file with its function to this folder, and a row here.
KINDS = {
    row.name: row
    for row in (
        SourceKind("digits", "digits:digits", ("classes",)),
        SourceKind("folder", "folder:folder", ("classes", "by_position"), "PATH", is_path=True),
        SourceKind(
            "tfds",
            "tfds:tensorflow_dataset",
            ("data_dir",),
            "NAME[:CONFIG]",
            # They have versions, and may be too large to be read.
            is_digested=False,
        ),
        SourceKind("tfrecord", "tfrecord:records", ("by_position",), "PATTERN", is_path=True),
    )
}


def find_kind(name):
    """Find the kind of a dataset and what follows it in the name, without `by-position:`.

    Returns:
        `(kind, argument)`, a row of the table or `None`, and a string.

    Example:
    >>> from keras_vit.data.sources.kinds import find_kind
    >>> kind, path = find_kind("folder:photos")
    >>> kind.pattern, path
    ('folder:PATH', 'photos')
    >>> find_kind("cifar10")
    (None, '')
    """
    first, _, argument = name.removeprefix(BY_POSITION).partition(":")
    kind = KINDS.get(first)
    is_complete = kind is not None and bool(argument) == (kind.argument is not None)
    return (kind, argument) if is_complete else (None, argument)


def names_with(option):
    """Return the names of the kinds with an option, for help and errors.

    Example:
    >>> from keras_vit.data.sources.kinds import names_with
    >>> names_with("by_position")
    '`folder:PATH` or `tfrecord:PATTERN`'
    """
    return " or ".join(f"`{row.pattern}`" for row in KINDS.values() if option in row.options)


def is_path(name):
    """Whether the name of a dataset has a path."""
    kind, _ = find_kind(name)
    return kind is not None and kind.is_path


def absolute_name(data):
    """Return the name of a dataset with an absolute path, for use in any working directory.

    Example:
    >>> from keras_vit.data.sources.kinds import absolute_name
    >>> absolute_name("cifar10"), absolute_name("folder:/photos/../photos")
    ('cifar10', 'folder:/photos')
    """
    if not is_path(data):
        return data
    kind, path = find_kind(data)
    prefix = BY_POSITION if data.startswith(BY_POSITION) else ""
    return f"{prefix}{kind.name}:{pathlib.Path(path).expanduser().resolve()}"
