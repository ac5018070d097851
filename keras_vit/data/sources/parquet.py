"""Parquet files with a column of encoded images and a column of labels."""

import itertools
import re

import numpy as np
import tensorflow as tf

from keras_vit.data.sources.examples import bytes_of, choose_examples, find_columns
from keras_vit.data.sources.folder import short_names
from keras_vit.data.sources.patterns import find_files
from keras_vit.data.sources.source import Source, numbered_ids

_PARQUET = re.compile(r".*\.(parquet|pq)", re.IGNORECASE)
# Number of rows to read at once.
_ROWS = 64


def parquet(name, split, shard=(0, 1)):
    """Find the rows of a split; each has an encoded image and its label.

    Images are bytes, or structures with a field `bytes`, as Hugging Face writes them. Rows are read
    in order, because Parquet has no fast access to single rows.

    Args:
        name: pattern as in `find_files`. `#COLUMN` after the pattern names the column of labels:
            see `find_columns`. Without `{split}`, every ten consecutive rows of a file are divided
            7 : 1 : 2.
        split: as in `load`.
        shard: `(index, count)`, the share of one worker. If there are at least `count` files, each
            worker reads whole files.

    Returns:
        A `Source`; the id of an example is `FILE#ROW`.

    Raises:
        ValueError: as `find_files` and `find_columns`, or if the columns of the files differ.
    """
    import pyarrow.dataset
    import pyarrow.parquet

    pattern, _, label = name.partition("#")
    present, options = find_files(pattern, "parquet", _PARQUET)
    all_files = [*itertools.chain(*present.values())]
    # Errors of `pyarrow.dataset` name the file.
    schemas = ((file, pyarrow.dataset.dataset(file, format="parquet").schema) for file in all_files)
    columns = {find_columns(schema, repr(file), label) for file, schema in schemas}
    if len(columns) > 1:
        raise ValueError(
            "The files of `parquet:PATTERN` must have the same columns and classes. "
            f"Received: {pattern!r}, with {columns}"
        )
    ((image, label, names),) = columns

    def read_labels(file):
        return pyarrow.parquet.read_table(file, columns=[label])[label].to_pylist()

    files, counts, numbers, labels, names = choose_examples(present, split, read_labels, names)
    own_files, own_rows = (shard, (0, 1)) if len(files) >= shard[1] else ((0, 1), shard)
    own = slice(own_files[0], None, own_files[1])
    numbers = np.concatenate(numbers[own])[own_rows[0] :: own_rows[1]]
    starts = np.cumsum([0, *counts])

    def read_rows(first, last):
        """Yield the examples with numbers from `first` to `last`, in arrays of several rows."""
        for path, start, stop in zip(files, starts[:-1], starts[1:], strict=True):
            begin, end = np.searchsorted(numbers, [max(first, start), min(last + 1, stop)])
            if begin < end:
                yield from read_file(path, start, numbers[begin:end])

    def read_file(path, start, wanted):
        with pyarrow.parquet.ParquetFile(path) as file:
            rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            bounds = start + np.cumsum([0, *rows])
            first, last = np.searchsorted(bounds, wanted[[0, -1]], side="right") - 1
            position, groups = bounds[first], range(first, last + 1)
            for batch in file.iter_batches(_ROWS, row_groups=groups, columns=[image]):
                begin, end = np.searchsorted(wanted, [position, position + batch.num_rows])
                chosen = wanted[begin:end]
                images = batch.column(0).take(pyarrow.array(chosen - position)).to_pylist()
                yield chosen, [*map(bytes_of, images)], labels[chosen]
                position += batch.num_rows

    def read(first=0, last=starts[-1]):
        spec = tuple(tf.TensorSpec([None], kind) for kind in ("int64", "string", "int32"))
        rows = tf.data.Dataset.from_generator(read_rows, args=(first, last), output_signature=spec)
        return rows.unbatch()

    short = short_names(all_files)
    return Source(
        read(),
        names,
        numbers,
        numbered_ids([short[file] for file in files], starts[:-1]),
        read_range=read,
        all_labels=labels,
        record_files=tuple(files.tolist()),
        **options,
    )
