"""Images in Parquet files, as Ray, Spark and Hugging Face's datasets write them."""

import functools
import json
import pathlib

import numpy as np

from keras_vit.data.inputs.rows import ImageRows

# Columns of encoded images, in order of preference, and of ids.
_IMAGES, _IDS = ("bytes", "content", "image"), ("id", "path")


def parquet_rows(paths):
    """Return the images in Parquet files as `ImageRows`.

    Args:
        paths: list of paths of files with the same columns: encoded images in `bytes`, `content` or
            `image`, where they may be a structure with `bytes`; and perhaps `label`, text or
            numbers, and `id` or `path`. Without the last two, an id is the name of the file, `#`,
            and the number of the row.

    Returns:
        `ImageRows`.

    Raises:
        ValueError: if a file is damaged or lacks such a column of images.
    """
    files = [_open(path) for path in paths]
    image, label, id = _columns_of(files[0].schema_arrow, paths[0])
    for path, file in zip(paths, files, strict=True):
        if _columns_of(file.schema_arrow, path) != (image, label, id):
            raise ValueError(
                "The Parquet files must have the same columns. "
                f"Received: {str(paths[0])!r} and {str(path)!r}, which differ"
            )
    starts = np.cumsum([0, *(file.metadata.num_rows for file in files)])
    names = _class_names(files[0].schema_arrow, label)

    # The parts of a dataset are read one after the other.
    @functools.lru_cache(maxsize=1)
    def read_group(file, group):
        return files[file].read_row_group(group, columns=[image, *filter(None, [label])])

    def read(start, stop):
        images, labels = [], []
        for file, group, first, last in _pieces(files, starts, start, stop):
            piece = read_group(file, group).slice(first, last - first)
            images += map(_bytes_of, piece[image].to_pylist())
            labels += piece[label].to_pylist() if label else []
        columns = {"bytes": np.array(images, object)}
        if label:
            columns["label"] = _labels(labels, names)
        return columns

    return ImageRows(
        int(starts[-1]),
        _ids(files, starts, id, paths),
        read,
        has_labels=label is not None,
        has_several_labels=label is not None and _is_list(files[0].schema_arrow.field(label).type),
    )


def _open(path):
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(
            f"A Parquet file must be complete. Received: {str(path)!r} ({error})"
        ) from error


def _columns_of(schema, path):
    """Return the names of the columns of images, labels and ids, `None` for none."""
    import pyarrow

    def holds_bytes(field):
        kind = field.type
        if pyarrow.types.is_struct(kind):
            return kind.get_field_index("bytes") >= 0
        return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)

    image = next((n for n in _IMAGES if n in schema.names and holds_bytes(schema.field(n))), None)
    if image is None:
        raise ValueError(
            f"A Parquet file must have a column {', '.join(_IMAGES)} of encoded images. "
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
        return features[label]["names"]
    except (KeyError, TypeError, ValueError):
        return None


def _labels(values, names):
    """Return labels as names: those of the file, or their numbers."""

    def name(value):
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, list):
            return [name(one) for one in value]
        return names[value] if names and 0 <= value < len(names) else str(value)

    column = np.empty(len(values), object)
    column[:] = [name(value) for value in values]
    return column


def _is_list(kind):
    import pyarrow

    return pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)


def _bytes_of(value):
    return value.get("bytes") if isinstance(value, dict) else value


def _pieces(files, starts, start, stop):
    """Yield `(file, row group, first, last)`, which together have the rows of a range."""
    for number, file in enumerate(files):
        place = starts[number]
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            first, last = max(start - place, 0), min(stop - place, rows)
            if first < last:
                yield number, group, int(first), int(last)
            place += rows


def _ids(files, starts, column, paths):
    """Return the function from the number of a row to its id."""
    import pyarrow

    if column is not None:
        ids = pyarrow.chunked_array(
            [file.read([column])[column].combine_chunks() for file in files]
        )
        return lambda number: ids[number].as_py() or f"#{number}"

    def find_id(number):
        file = int(np.searchsorted(starts, number, side="right")) - 1
        return f"{pathlib.Path(paths[file]).name}#{number - starts[file]}"

    return find_id
