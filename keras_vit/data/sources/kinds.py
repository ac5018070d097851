"""A table of the kinds of datasets that `load` finds by name, such as `folder:PATH`.

`named_datasets.py` has a table of single datasets, such as `cifar10`. This module imports neither
Keras nor TensorFlow.
"""

import dataclasses
import pathlib
import pkgutil
import re

from keras_vit.data.sources.splits import SPLITS


@dataclasses.dataclass(frozen=True)
class SourceKind:
    """A kind of dataset: its name and the function that finds its examples.

    Args:
        name: the name of the dataset, or the part of it before the colon.
        function: `module:function` in this folder. The function takes the part of the name after
            the colon (if there is a colon), the split and `shard`, and returns a `Source`.
        takes: other arguments of `find_source` that the function takes: `classes` or `data_dir`.
        placeholder: word that stands for the part after the colon in help texts and errors; `None`
            if names have no colon.
        is_path: whether the part after the colon is a path. Recorded paths are absolute, and
            `evaluate` and `deduplicate` report the sizes of the splits of such a dataset. `None` if
            it is a path where the path exists, and the name of a public dataset otherwise.
        splits: names of the possible splits.
    """

    name: str
    function: str
    takes: tuple[str, ...] = ()
    placeholder: str | None = None
    is_path: bool | None = False
    splits: tuple[str, ...] = SPLITS

    @property
    def pattern(self):
        """The form of names of this kind, for help texts and errors."""
        return self.name if self.placeholder is None else f"{self.name}:{self.placeholder}"

    def has_path(self, argument):
        """Whether the part of a name after the colon is a path."""
        if self.is_path is None:
            return pathlib.Path(re.split("[:#]", argument)[0]).expanduser().exists()
        return self.is_path

    def find(self, argument, split, **options):
        """Return the `Source` of a split."""
        find = pkgutil.resolve_name(f"keras_vit.data.sources.{self.function}")
        arguments = () if self.placeholder is None else (argument,)
        return find(*arguments, split, **options)


# To add a kind, add a file with its function to this folder, and a row to this table.
_ROWS = (
    SourceKind("digits", "source:digits", ("classes",)),
    SourceKind("folder", "folder:folder", ("classes",), "PATH", is_path=True),
    SourceKind("csv", "csv_file:csv_file", ("classes",), "PATH", is_path=True),
    SourceKind("tfds", "tfds:tensorflow_dataset", ("data_dir",), "NAME[:CONFIG]"),
    SourceKind("tfrecord", "records:records", (), "PATTERN", is_path=True),
    SourceKind("tfrecord-lists", "records:lists", (), "PATTERN", is_path=True),
    SourceKind("parquet", "parquet:parquet", (), "PATTERN", is_path=True),
    SourceKind("webdataset", "webdataset:webdataset", (), "PATTERN", is_path=True),
    SourceKind("hf", "hugging_face:hugging_face", (), "NAME[:CONFIG]", is_path=None),
    SourceKind("masks", "masks:masks", (), "DIR", is_path=True),
    SourceKind("objectnet", "objectnet:objectnet", (), "DIR", is_path=True, splits=("test",)),
)
KINDS = {row.name: row for row in _ROWS}


def find_kind(name):
    """Find the kind of a dataset.

    Returns:
        `(kind, argument)`: a `SourceKind`, or `None` for other names, and the part after the colon.

    Example:
    >>> from keras_vit.data.sources.kinds import find_kind
    >>> kind, path = find_kind("folder:photos")
    >>> kind.pattern, path
    ('folder:PATH', 'photos')
    >>> find_kind("cifar10")
    (None, '')
    """
    if not isinstance(name, str):
        raise ValueError(
            "`data` must be the name of a dataset, such as 'digits' or 'folder:PATH'; use "
            f"`model.fit` for a `tf.data.Dataset` or arrays. Received: data={name!r:.80}"
        )
    first, colon, argument = name.partition(":")
    kind = KINDS.get(first)
    is_complete = kind is not None and (bool(argument) if kind.placeholder else not colon)
    return (kind if is_complete else None), argument


def has_path(name):
    """Whether the name of a dataset contains a path."""
    kind, argument = find_kind(name)
    return kind is not None and kind.has_path(argument)


def absolute_name(data):
    """Return the name of a dataset with an absolute path, for use in any working directory.

    Example:
    >>> from keras_vit.data.sources.kinds import absolute_name
    >>> absolute_name("cifar10"), absolute_name("folder:/photos/../photos")
    ('cifar10', 'folder:/photos')
    """
    kind, path = find_kind(data)
    if kind is None or not kind.has_path(path):
        return data
    return f"{kind.name}:{pathlib.Path(path).expanduser().resolve()}"
