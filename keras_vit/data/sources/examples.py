"""Columns, labels and payloads that sources of many images per file have in common."""

import itertools
import json

import numpy as np
import tensorflow as tf

from keras_vit.data.sources.patterns import files_of, numbers_of


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
        is_text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
        return is_text or pyarrow.types.is_integer(kind)

    chosen = []
    for usual, is_such in (("image", holds_images), (label or "label", is_label)):
        names = [name for name in schema.names if is_such(schema.field(name).type)]
        if usual in names or (len(names) == 1 and not (label and usual == label)):
            chosen.append(usual if usual in names else names[0])
            continue
        raise ValueError(
            f"A table must have a column {usual!r} with "
            f"{'the bytes of images' if is_such is holds_images else 'texts or integers'}, or only "
            "one such column; `#COLUMN` at the end of the name chooses the labels. "
            f"Received: {where}, with {', '.join(f'{f.name} ({f.type})' for f in schema)}"
        )
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


def choose_examples(present, split, read_labels, names=None):
    """Find the examples of a split, and number their labels.

    Args:
        present: the files of each split, as from `find_files`.
        split: as in `load`.
        read_labels: function from a file to the labels of its examples: numbers, texts or `None`.
        names: class names. By default, they are the sorted texts, or `0`, `1` and so on, of all
            splits.

    Returns:
        `(files, counts, numbers, labels, names)`: the files with examples of the split, the number
        of examples in each, the numbers of the examples of the split (one array per file), the
        label of each example of the files (-1 if it has none), and the class names.
    """
    files, turns = files_of(present, split)
    all_files = itertools.chain(*present.values())
    labels = {file: read_labels(file) for file in (files if names else all_files)}
    if not names:
        found = set().union(*labels.values()) - {None}
        if any(isinstance(label, str) for label in found):
            names = sorted(map(str, found))
            labels = {f: [v if v is None else str(v) for v in labels[f]] for f in labels}
        else:
            names = [str(number) for number in range(max(found, default=-1) + 1)]
    index = {name: number for number, name in enumerate(names)} | {None: -1}
    counts = [len(labels[file]) for file in files]
    values = (value for file in files for value in labels[file])
    numbered = np.array([index.get(v, -1 if isinstance(v, str) else v) for v in values], "int64")
    # Without clipping, the cast to int32 would turn 2**32 into the valid label 0.
    numbered = np.clip(numbered, -1, np.iinfo("int32").max).astype("int32")
    return files, counts, numbers_of(files, turns, counts), numbered, tuple(names)


def reading(read):
    """Return a function as `Source.read` for payloads that are the numbers of examples.

    Args:
        read: function from the number of an example to the bytes of its image.
    """

    def read_payload(payload):
        encoded = tf.py_function(lambda number: read(int(number.numpy())), [payload], tf.string)
        return tf.ensure_shape(encoded, ())

    return read_payload
