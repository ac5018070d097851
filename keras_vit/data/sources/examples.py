"""Columns, labels and payloads that sources of many images per file have in common."""

import itertools
import json
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.data.sources.patterns import files_of, numbers_of
from keras_vit.data.sources.source import from_arrays

# Greatest number of classes without names. Larger integers are identifiers or times.
MOST_CLASSES = 1_000_000


def find_columns(schema, where, label=""):
    """Find the columns of the images and of the labels of a table.

    Args:
        schema: `pyarrow.Schema`.
        where: name of the table, for errors.
        label: name of the column of labels. By default, the column is `label`, or the only column
            of texts or integers. The column of images is `image`, or the only one with the bytes of
            images.

    Returns:
        `(image, label, class_names)`: two names, and the class names that a dataset of Hugging Face
        records, or `None`.

    Raises:
        ValueError: if a column is missing, or there are several and none has the usual name.
    """
    import pyarrow

    def is_label(kind):
        types = pyarrow.types
        return types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)

    chosen = []
    images = "image", holds_images, "the bytes of images"
    for usual, is_such, contents in (images, (label or "label", is_label, "texts or integers")):
        names = [name for name in schema.names if is_such(schema.field(name).type)]
        if usual not in names and (len(names) != 1 or usual == label):
            raise ValueError(
                f"A table must have a column {usual!r}, or only one column, with {contents}; "
                "`#COLUMN` at the end of the name chooses the column of labels. "
                f"Received: {where}, with {', '.join(f'{f.name} ({f.type})' for f in schema)}"
            )
        chosen.append(usual if usual in names else names[0])
    return *chosen, recorded_class_names(schema, chosen[1])


def holds_images(kind):
    """Whether a column of this `pyarrow.DataType` may contain the bytes of images."""
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0
    return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)


def recorded_class_names(schema, label):
    """Return the class names that a dataset of Hugging Face records in a schema, or `None`."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return tuple(features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return None


def bytes_of(image):
    """Return the bytes of an image in a table, b"" if it has none."""
    return (image.get("bytes") if isinstance(image, dict) else image) or b""


class Chosen(NamedTuple):
    """The examples of a split, in files, or in the splits of a dataset of Hugging Face.

    Args:
        files: the files with examples of the split.
        counts: the number of examples in each file.
        numbers: the numbers of the examples of the split, one array per file.
        labels: the label of each example of the files, -1 if it has none.
        class_names: name of each label.
    """

    files: np.ndarray
    counts: list[int]
    numbers: list[np.ndarray]
    labels: np.ndarray
    class_names: tuple[str, ...]


def choose_examples(present, split, read_labels, names=None):
    """Find the examples of a split, and number their labels.

    Args:
        present: the files of each split, as from `find_files`.
        split: as in `load`.
        read_labels: function from a file to the labels of its examples: numbers, texts or `None`.
        names: class names. By default, they are the sorted texts, or `0`, `1` and so on, of all
            splits.

    Returns:
        `Chosen`.
    """
    files, turns = files_of(present, split)
    all_files = itertools.chain(*present.values())
    labels = {file: read_labels(file) for file in (files if names else all_files)}
    found = set().union(*labels.values()) - {None}
    if not names:
        is_text = any(isinstance(label, str) for label in found)
        largest = max((label for label in found if not isinstance(label, str)), default=0)
        if not is_text and largest >= MOST_CLASSES:
            raise ValueError(
                f"Labels that are integers must be classes, from 0 to less than {MOST_CLASSES:,}; "
                "`#COLUMN` at the end of the name of a table chooses another column. "
                f"Received: the label {largest}"
            )
        names = sorted(found, key=str) if is_text else range(max(found, default=-1) + 1)
    index = {name: number for number, name in enumerate(names)}
    values = [index.get(v, v if isinstance(v, int) else -1) for f in files for v in labels[f]]
    # Without clipping, the cast to int32 would turn 2**32 into the valid label 0.
    numbered = np.clip(values, -1, np.iinfo("int32").max).astype("int32")
    counts = [len(labels[file]) for file in files]
    numbers = numbers_of(files, turns, counts)
    return Chosen(files, counts, numbers, numbered, tuple(map(str, names)))


def numbered_source(chosen, find_id, read, shard, **options):
    """Return a `Source` whose payloads are the numbers of the examples.

    Args:
        chosen: `Chosen`.
        find_id: function from a file and a position in it to the id of the example.
        read: function from a file and a position in it to the bytes of the image.
        shard: as in `load`.
        **options: as in `Source`.
    """
    starts, labels = np.cumsum([0, *chosen.counts]), chosen.labels

    def place(number):
        """Return the file of an example, and its position in the file."""
        file = np.searchsorted(starts, number, side="right") - 1
        return chosen.files[file], int(number - starts[file])

    def find(number):
        return find_id(*place(number))

    def read_payload(payload):
        encoded = tf.py_function(lambda n: read(*place(int(n.numpy()))), [payload], tf.string)
        return tf.ensure_shape(encoded, ())

    options |= {"read": read_payload, "all_labels": labels}
    payloads, indices = np.arange(len(labels)).astype("S"), np.concatenate(chosen.numbers)
    indices = indices[shard[0] :: shard[1]]
    return from_arrays(payloads, labels, chosen.class_names, find, indices, **options)
