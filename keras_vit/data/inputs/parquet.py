"""Images in Parquet files, as Ray, Spark and Hugging Face's datasets write them."""

import functools
import itertools
import json

import numpy as np

from keras_vit.core.arguments import as_objects
from keras_vit.core.choices import ENCODED_COLUMNS
from keras_vit.data.digest import data_digest
from keras_vit.data.inputs.rows import ImageRows
from keras_vit.data.sources.folder import short_names

_IDS = ("id", "path")
# Rows that are in memory at once: one row group may hold all images of a file.
_ROWS_AT_ONCE = 64
# Rows that are read and left out rather than to begin their row group again.
_SKIPPED_AT_MOST = 4096


def parquet_rows(paths):
    """Return the images in Parquet files as `ImageRows`.

    Args:
        paths: list of paths of files with the same columns: encoded images in `bytes`, `content` or
            `image`, where they may be a structure with `bytes`; and perhaps `label`, text or
            numbers, and `id` or `path`. Without the last two, an id is the name of the file, `#`,
            and the number of the row.

    Returns:
        `ImageRows`. Ranges that follow one another are read without reading anything twice.

    Raises:
        ValueError: if a file is damaged or lacks such a column of images.
    """
    schemas, counts = zip(*map(_schema_and_count, paths), strict=True)
    image, label, id = _columns_of(schemas[0], paths[0])
    for path, schema in zip(paths, schemas, strict=True):
        if _columns_of(schema, path) != (image, label, id):
            raise ValueError(
                "The Parquet files must have the same columns. "
                f"Received: {str(paths[0])!r} and {str(path)!r}, which differ"
            )
    starts = np.cumsum([0, *counts])
    names = _class_names(schemas[0], label)
    num_images, find_id = int(starts[-1]), _ids(paths, starts, id)
    stream = _Stream(paths, starts, [image, *filter(None, [label])])

    def read(start, stop):
        rows = stream.read(start, stop)
        columns = {"bytes": as_objects([_bytes_of(row[image]) for row in rows])}
        if label:
            columns["label"] = as_objects([_name(row[label], names) for row in rows])
        return columns

    def digest():
        import pyarrow.parquet

        columns = [label] if label else []
        labels = [pyarrow.parquet.read_table(path, columns=columns).to_pydict() for path in paths]
        return data_digest((labels,), ((find_id(n),) for n in range(num_images)), num_images, paths)

    return ImageRows(
        num_images,
        find_id,
        read,
        digest,
        has_labels=label is not None,
        has_several_labels=label is not None and _is_list(schemas[0].field(label).type),
        class_names=names,
    )


class _Stream:
    """The rows of files, read forwards; other ranges begin at their row group again."""

    def __init__(self, paths, starts, columns):
        self._paths, self._starts, self._columns = paths, starts, columns
        self._rows, self._place = iter(()), None

    def read(self, start, stop):
        """Return a range of rows as dictionaries."""
        if self._place is None or not 0 <= start - self._place <= _SKIPPED_AT_MOST:
            self._go_to(start)
        skipped = start - self._place
        self._place = stop
        return list(itertools.islice(self._rows, skipped, skipped + stop - start))

    def _go_to(self, start):
        """Go to the row group of a row, of which only the needed rows become Python objects."""
        file = int(np.searchsorted(self._starts, start, side="right")) - 1
        self._rows = self._rows_from(file, start - self._starts[file])
        self._place = start

    def _rows_from(self, file, skipped):
        for path in self._paths[file:]:
            with _open(path) as opened:
                ends = np.cumsum([_group(opened, i).num_rows for i in range(opened.num_row_groups)])
                first = int(np.searchsorted(ends, skipped, side="right"))
                skipped -= ends[first - 1] if first else 0
                groups = list(range(first, len(ends)))
                options = {"row_groups": groups, "columns": self._columns}
                for batch in opened.iter_batches(_ROWS_AT_ONCE, **options) if groups else ():
                    yield from batch.slice(skipped).to_pylist() if skipped < len(batch) else ()
                    skipped = max(skipped - len(batch), 0)
            skipped = 0


def _group(file, index):
    return file.metadata.row_group(index)


def _open(path):
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"A Parquet file must be complete. Received: {str(path)!r} ({error})"
        ) from error


def _schema_and_count(path):
    # Files are closed again: there may be more than a process may have open.
    with _open(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def _columns_of(schema, path):
    """Return the names of the columns of images, labels and ids, `None` for none."""
    import pyarrow

    def holds_bytes(field):
        kind = field.type
        if pyarrow.types.is_struct(kind):
            return kind.get_field_index("bytes") >= 0
        return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)

    known = (name for name in ENCODED_COLUMNS if name in schema.names)
    image = next((name for name in known if holds_bytes(schema.field(name))), None)
    if image is None:
        raise ValueError(
            f"A Parquet file must have a column {', '.join(ENCODED_COLUMNS)} of encoded images. "
            f"Received: {str(path)!r} with {', '.join(schema.names)}"
        )
    label = "label" if "label" in schema.names else None
    texts = (pyarrow.string(), pyarrow.large_string())
    id = next((n for n in _IDS if n in schema.names and schema.field(n).type in texts), None)
    return image, label, id


def _class_names(schema, label):
    """Return the names of numbered labels that Hugging Face's datasets record, or `None`."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return tuple(features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return None


def _name(label, names):
    """Return the name of a label or a list of them: that of the file, or its number as text."""
    if label is None or isinstance(label, str):
        return label
    if isinstance(label, list):
        return [_name(one, names) for one in label]
    return names[label] if names and 0 <= label < len(names) else str(label)


def _is_list(kind):
    import pyarrow

    return pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)


def _bytes_of(value):
    return value.get("bytes") if isinstance(value, dict) else value


def _ids(paths, starts, column):
    """Return the function from the number of a row to its id."""
    import pyarrow
    import pyarrow.parquet

    names = short_names(map(str, paths))

    def position(number):
        file = int(np.searchsorted(starts, number, side="right")) - 1
        return f"{names[str(paths[file])]}#{number - starts[file]}"

    if column is None:
        return position
    read = functools.partial(pyarrow.parquet.read_table, columns=[column])
    ids = pyarrow.concat_tables(map(read, paths))[column].combine_chunks()
    return lambda number: ids[number].as_py() or position(number)
