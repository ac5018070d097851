"""`find_images`: find the images to predict, in files, folders, Parquet files or a dataset.

The result, `ImageRows`, numbers the images, so that workers can read any range of them.
"""

import collections
import dataclasses
import itertools
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.core.arguments import as_objects
from keras_vit.data.digest import data_digest
from keras_vit.data.images.decoding import decode, read_orientation, turn_upright
from keras_vit.data.pipeline import find_all_splits, find_source
from keras_vit.data.sources.examples import holds_images, recorded_class_names
from keras_vit.data.sources.folder import id_of, list_images, short_names
from keras_vit.data.sources.kinds import absolute_name, find_kind
from keras_vit.data.sources.named_datasets import DATASETS
from keras_vit.data.sources.source import numbered_ids

_PARQUET = ".parquet"

# Names of a column of encoded images, in order of preference: `bytes` in this package and Ray,
# `content` in Spark, `image` in datasets of Hugging Face.
ENCODED_COLUMNS = ("bytes", "content", "image")
# A directory of predictions records its settings in this file. Readers of Parquet ignore files
# whose names begin with an underscore or a dot.
PREDICTIONS_RECORD = "_predictions.json"
# Names of a column of ids in Parquet files, in order of preference.
_IDS = ("id", "path")
# Number of rows to read at once. A whole row group may be too large: it may have all images.
_ROWS_AT_ONCE = 64


def is_dataset(name):
    """Whether a name is the name of a dataset, as in `keras_vit.data.load`, and not a path."""
    path = pathlib.Path(name).expanduser()
    # A directory may have the name of a dataset because it contains predictions for the dataset.
    is_path = path.exists() and not (path / PREDICTIONS_RECORD).exists()
    return not is_path and (name in DATASETS or find_kind(name)[0] is not None)


def absolute_names(names):
    """Return the names of images with absolute paths, for use in any working directory."""
    return tuple(
        absolute_name(name) if is_dataset(name) else _absolute_path(name)
        for name in map(str, names)
    )


def _absolute_path(name):
    # Links are resolved only if the path contains `..`.
    path = pathlib.Path(name).expanduser()
    return str(path.resolve() if ".." in path.parts else path.absolute())


def find_images(names, split=None, data_dir=None):
    """Find the images that a user names.

    Args:
        names: list of image files, of folders with images at any level, and of patterns of such
            paths; or the same with Parquet files instead of images; or the name of a dataset, as in
            `keras_vit.data.load`, as the only entry.
        split: split of the dataset, as in `load`; `None` for all splits.
        data_dir: as in `load`.

    Returns:
        `ImageRows`. If the only name is a folder, ids are paths relative to the folder; otherwise
        ids are paths.

    Raises:
        ValueError: if there are no images, or `split` is given for files or folders.

    Example:
    >>> from keras_vit.data.inputs import find_images
    >>> images = find_images(["digits"], split="test")
    >>> images.num_images, images.columns(0, 2)["label"].tolist()
    (359, ['0', '3'])
    """
    names = [str(name) for name in names]
    if any(map(is_dataset, names)):
        if len(names) > 1:
            raise ValueError(f"A dataset must be the only name in `images`. Received: {names}")
        (name,) = names
        source = (
            find_source(name, split, data_dir=data_dir)
            if split
            else find_all_splits(name, data_dir)
        )
        return source_rows(source)
    if split is not None:
        raise ValueError(
            "`split` is for datasets, such as `folder:PATH`, not for paths of folders and files. "
            f"Received: split={split!r}, images={names}"
        )
    tables = _parquet_files(names)
    images = parquet_rows(tables) if tables else _image_files(names)
    if not images.num_images:
        raise ValueError(f"`images` must name an image. Received: {names}, without images")
    return images


def matching_paths(name):
    """Return the paths that match a pattern, or the path itself if the name is not a pattern."""
    path = pathlib.Path(name).expanduser()
    matches = [] if path.exists() else sorted(tf.io.gfile.glob(str(path)))
    return [pathlib.Path(match) for match in matches] or [path]


def _parquet_files(names):
    """Return the Parquet files that are named; raise `ValueError` if images are named as well."""
    tables, has_images = [], False
    for path in itertools.chain.from_iterable(map(matching_paths, names)):
        files = sorted(path.rglob(f"*{_PARQUET}")) if path.is_dir() else [path]
        found = [file for file in files if file.suffix == _PARQUET]
        tables += found
        has_images |= not found or (path.is_dir() and bool(list_images(path)[0]))
    if has_images and tables:
        raise ValueError(f"`images` must be Parquet files or images, not both. Received: {names}")
    return tables


def _image_files(names):
    paths, ids, left_out = [], [], collections.Counter()
    # A pattern may match several folders, which may have files of the same name.
    is_one_folder = len(names) == 1 == len(matching_paths(names[0]))
    for name in names:
        for path in matching_paths(name):
            if not path.is_dir():
                paths.append(str(path))
                ids.append(str(path) if path != pathlib.Path(name).expanduser() else name)
                continue
            images, reasons = list_images(path)
            paths += images
            ids += [id_of(image, path) if is_one_folder else image for image in images]
            left_out += reasons

    def read(start, stop):
        return {"path": as_objects(paths[start:stop])}

    def digest():
        return data_digest((), zip(ids, map(pathlib.Path, paths), strict=True), len(paths))

    return ImageRows(len(paths), ids.__getitem__, read, digest, left_out=left_out)


def thumbnails(images, ids, size=160):
    """Return small pictures of some of the images.

    Args:
        images: `ImageRows`.
        ids: set of the ids of the images to read.
        size: greatest length of a side, in pixels.

    Returns:
        A dictionary from ids to uint8 arrays `(height, width, 3)`.
    """
    pictures = {}
    for number in range(images.num_images):
        if (id := images.find_id(number)) in ids:
            picture = Image.fromarray(_pixels(images.read(number, number + 1)))
            picture.thumbnail((size, size))
            pictures[id] = np.asarray(picture)
    return pictures


def _pixels(columns):
    if "image" in columns:
        return columns["image"][0]
    encoded = columns["bytes"][0] if "bytes" in columns else tf.io.read_file(columns["path"][0])
    return turn_upright(decode(encoded), read_orientation(encoded)).numpy()


@dataclasses.dataclass(frozen=True)
class ImageRows:
    """Images to predict, numbered from 0 in an order that does not change.

    Args:
        num_images: number of images.
        find_id: function from the number of an image to its id, a string.
        read: function of `start` and `stop` that reads images like a slice. It returns a dictionary
            of columns: `path`, `bytes` or `image`, as `Predictor` takes them, and, if `has_labels`,
            `label` with class names or lists of class names.
        digest: function that returns a digest of the images, as `Source.digest`.
        has_labels: whether there is a column `label`.
        is_multi_label: whether the column `label` has lists.
        has_values: whether the column `label` has arrays of numbers instead of names.
        class_names: names of the classes in the order of the dataset, or `None` if not recorded.
        left_out: number of files that are not images, by reason.
    """

    num_images: int
    find_id: Callable[[int], str]
    read: Callable[[int, int], dict]
    digest: Callable[[], str]
    has_labels: bool = False
    is_multi_label: bool = False
    has_values: bool = False
    class_names: tuple[str, ...] | None = None
    left_out: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def columns(self, start, stop):
        """Return the columns of a range of images: `id` and the columns of `read`."""
        ids = [self.find_id(number) for number in range(start, stop)]
        return {"id": as_objects(ids), **self.read(start, stop)}


def source_rows(source):
    """Return the examples of a `Source` as `ImageRows`, with the names of their labels."""

    def read(start, stop):
        numbers = source.numbers[start:stop]
        examples = source.examples_with(numbers).as_numpy_iterator()
        by_number = {int(number): (payload, label) for number, payload, label in examples}
        source.check_readable(np.setdiff1d(numbers, [*by_number]))
        payloads, labels = zip(*(by_number[number] for number in numbers.tolist()), strict=True)
        return {
            **_image_column(source, numbers, payloads),
            "label": as_objects([_label_of(source, label) for label in labels]),
        }

    return ImageRows(
        source.num_examples,
        lambda number: source.find_id(int(source.numbers[number])),
        read,
        source.digest,
        has_labels=True,
        is_multi_label=source.is_multi_label,
        has_values=source.has_values,
        class_names=source.class_names,
        left_out=source.left_out,
    )


def _image_column(source, numbers, payloads):
    if source.path_of is not None and not source.border:
        return {"path": as_objects([source.path_of(int(number)) for number in numbers])}
    encoded = [tf.convert_to_tensor(source.read(payload)).numpy() for payload in payloads]
    if source.scale == 1 and not source.border:
        return {"bytes": as_objects(encoded)}
    return {"image": as_objects([_decode_if_possible(source, image) for image in encoded])}


def _decode_if_possible(source, encoded):
    try:
        return source.pixels(decode(encoded)).numpy()
    except tf.errors.OpError:
        # The predictor reports why these bytes cannot be decoded.
        return encoded


def _label_of(source, label):
    """Return the name of the class of a label, or `None` if it has no class.

    For a multi-label source, return the list of the names of its classes. Return values unchanged.
    """
    if source.has_values:
        return label
    names = source.class_names
    if source.is_multi_label:
        return [names[index] for index in np.flatnonzero(label > 0)]
    return names[label] if 0 <= label < len(names) else None


def parquet_rows(paths):
    """Return the images in Parquet files as `ImageRows`.

    Args:
        paths: list of paths of files with the same columns. The column `bytes`, `content` or
            `image` has encoded images, or structures with a field `bytes`. Optional columns are
            `label` (text or numbers), and `id` or `path` (ids). Without ids, the id of an image is
            the name of the file, `#`, and the number of the row.

    Returns:
        `ImageRows`. If consecutive ranges are read, each row is read once.

    Raises:
        ValueError: if there is no column of images, or the columns of the files differ.
    """
    # Inside functions: the newest pyarrow needs NumPy 2, which images in files do not.
    import pyarrow.parquet

    schemas, groups, counts = [], [], [[] for _ in paths]
    for path, file_counts in zip(paths, counts, strict=True):
        # Each file is closed, because there may be more files than a process can keep open.
        with pyarrow.parquet.ParquetFile(path) as file:
            schemas.append(file.schema_arrow)
            file_counts += [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        groups += [(path, index) for index in range(len(file_counts))]
    (image, label, id), *others = {_columns_of(schema) for schema in schemas}
    if others or image is None:
        raise ValueError(
            f"Parquet files must have the same column {', '.join(ENCODED_COLUMNS)} of encoded "
            f"images, and the same `label`, `id` and `path`, if any. Received: {str(paths[0])!r}, "
            f"with {', '.join(schemas[0].names)}{', and files with other columns' * bool(others)}"
        )
    names = recorded_class_names(schemas[0], label)
    starts = np.cumsum([0, *map(sum, counts)])
    num_images, find_id = int(starts[-1]), _ids(paths, starts, id)
    columns = [image, *filter(None, [label])]
    stream = _Stream(groups, np.cumsum([0, *itertools.chain(*counts)])[:-1], columns)

    def read(start, stop):
        rows = stream.read(start, stop)
        encoded = (row[image] for row in rows)
        files = [file.get("bytes") if isinstance(file, dict) else file for file in encoded]
        labels = {"label": as_objects([_name(row[label], names) for row in rows])} if label else {}
        return {"bytes": as_objects(files), **labels}

    def digest():
        columns = [label] if label else []
        labels = [pyarrow.parquet.read_table(path, columns=columns).to_pydict() for path in paths]
        return data_digest((labels,), ((find_id(n),) for n in range(num_images)), num_images, paths)

    return ImageRows(
        num_images,
        find_id,
        read,
        digest,
        has_labels=label is not None,
        is_multi_label=label is not None and "list" in str(schemas[0].field(label).type),
        class_names=names,
    )


class _Stream:
    """Read ranges of rows, consecutive ranges without reading a row group twice."""

    def __init__(self, groups, starts, columns):
        self._groups, self._starts, self._columns = groups, starts, columns
        self._rows, self._position = iter(()), np.inf

    def read(self, start, stop):
        """Return a range of rows as dictionaries."""
        group, last = np.searchsorted(self._starts, [start, self._position], side="right") - 1
        if start < self._position or group > last:
            self._rows, self._position = self._rows_from(group), self._starts[group]
        skipped = start - self._position
        self._position = stop
        return list(itertools.islice(self._rows, skipped, skipped + stop - start))

    def _rows_from(self, group):
        import pyarrow.parquet

        for path, index in self._groups[group:]:
            with pyarrow.parquet.ParquetFile(path) as file:
                options = {"row_groups": [index], "columns": self._columns}
                for batch in file.iter_batches(_ROWS_AT_ONCE, **options):
                    yield from batch.to_pylist()


def _columns_of(schema):
    """Return the names of the columns of images, labels and ids; `None` for a missing column."""
    import pyarrow

    kinds = dict(zip(schema.names, schema.types, strict=True))
    texts = (pyarrow.string(), pyarrow.large_string())
    images = (name for name in ENCODED_COLUMNS if name in kinds and holds_images(kinds[name]))
    ids = (name for name in _IDS if kinds.get(name) in texts)
    return next(images, None), "label" if "label" in kinds else None, next(ids, None)


def _name(label, names):
    """Return the name of a label, or its number as text; for a list of labels, return a list."""
    if label is None or isinstance(label, str):
        return label
    if isinstance(label, list):
        return [_name(part, names) for part in label]
    return names[label] if names and 0 <= label < len(names) else str(label)


def _ids(paths, starts, column):
    """Return a function from the number of a row to the id of its image."""
    names = short_names(map(str, paths))
    numbered_id = numbered_ids([names[str(path)] for path in paths], starts)
    if column is None:
        return numbered_id
    import pyarrow.parquet

    tables = [pyarrow.parquet.read_table(path, columns=[column]) for path in paths]
    ids = pyarrow.concat_tables(tables)[column].combine_chunks()
    return lambda number: ids[number].as_py() or numbered_id(number)
