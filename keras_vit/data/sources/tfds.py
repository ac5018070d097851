"""Read datasets of TensorFlow Datasets as a `Source`, by their names or from our table."""

import functools
import itertools
import logging

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.data.sources.masks import pack
from keras_vit.data.sources.named_datasets import DatasetRow
from keras_vit.data.sources.source import Source, log_once, multi_hot, numbered_ids
from keras_vit.data.sources.splits import SPLITS, describe_splits, split_names, split_ranges


def tensorflow_dataset(name, split, data_dir=None, shard=(0, 1)):
    """Return a dataset of TensorFlow Datasets with an `image` and a class `label`, as a `Source`.

    A multi-label dataset has `labels`, a sequence of classes, instead of `label`. The id of an
    example is `SPLIT#POSITION`, with a split of TensorFlow Datasets. The name of the dataset is
    `NAME`, `NAME:CONFIG` or `NAME/CONFIG:VERSION`; other arguments are as in `find_source`.
    """
    builder = tfds.builder(_with_config(name), data_dir=data_dir)
    features = dict(builder.info.features or {})
    is_multi_label = "label" not in features
    label = features.get("label", getattr(features.get("labels"), "feature", None))
    if "image" not in features or not isinstance(label, tfds.features.ClassLabel):
        raise ValueError(
            "`tfds:NAME` must name a dataset with an `image`, and a class `label` or several "
            f"`labels`. Received: {name!r} with {sorted(features)}"
        )
    _prepare(builder)
    present = set(builder.info.splits)
    ranges = split_ranges(split, present)
    if present != set(SPLITS):
        used = describe_splits({split: split for split in SPLITS if split in present})
        unused = ", ".join(sorted(present - set(SPLITS))) or "none"
        log_once(logging.INFO, f"tfds:{name}: {used}; not used: {unused}")
    expression = "+".join(f"{part}[{start:.0%}:{stop:.0%}]" for part, start, stop in ranges)
    options = {"label": "labels", "is_multi_label": True} if is_multi_label else {}
    row = DatasetRow(name, name, {split: expression}, label.num_classes, **options)
    return _read(builder, row, expression, shard, keeps_unlabelled=True)


def paper_dataset(row, split, data_dir=None, shard=(0, 1)):
    """Return a dataset of the table `DATASETS` as a `Source`; `row` is its `DatasetRow`."""
    names = split_names(split)
    if not set(names) <= set(row.splits):
        raise ValueError(
            f"`split` of {row.name} must be among {', '.join(row.splits)}. "
            f"Received: split={split!r}"
        )
    builder = tfds.builder(row.builder, data_dir=data_dir)
    _prepare(builder)
    return _read(builder, row, "+".join(row.splits[name] for name in names), shard)


def _prepare(builder):
    """Download and prepare a dataset, unless it is on disk already."""
    try:
        builder.download_and_prepare()
    except Exception as error:
        # Many kinds of errors are possible. If the user must download files, the message of an
        # `AssertionError` has instructions.
        raise ValueError(
            f"The dataset {builder.name} cannot be downloaded. "
            f"Received: {type(error).__name__}: {error}"
        ) from error


def _with_config(name):
    """Return `NAME:CONFIG` in the form `NAME/CONFIG`; `NAME:VERSION` is not changed."""
    head, _, tail = name.partition(":")
    return f"{head}/{tail}" if "/" not in name and tail and not tail[0].isdigit() else name


def _read(builder, row, expression, shard, keeps_unlabelled=False):
    needs = {row.label: True} if isinstance(row.label, str) else row.needs
    encoded = ("image", row.mask) if row.mask else ("image",)
    decoders = tfds.decode.PartialDecoding(
        {**dict.fromkeys(encoded, True), **needs},
        decoders={name: tfds.decode.SkipDecoding() for name in encoded},
    )
    # Files are read one after another, so that examples come in the order of their positions.
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    starts = _first_numbers(builder.info.splits)
    pieces = list(_pieces(builder, expression, *shard))

    def read_piece(split, first, last):
        instruction = tfds.core.ReadInstruction(split, from_=first, to=last, unit="abs")
        piece = builder.as_dataset(split=instruction, decoders=decoders, read_config=config)
        return piece.enumerate(starts[split] + first)

    def read(pieces):
        dataset = functools.reduce(
            tf.data.Dataset.concatenate, itertools.starmap(read_piece, pieces)
        )
        if drops_unlabelled:
            dataset = dataset.filter(lambda number, features: tf.size(features[row.label]) > 0)
        return dataset

    def read_range(first, last):
        return as_examples(read(_between(pieces, starts, first, last)))

    def as_examples(dataset):
        return dataset.map(
            lambda number, features: (number, _payload(row, features), _label(row, features))
        )

    splits = dict.fromkeys(split for split, *_ in pieces)
    files = [file for split in splits for file in builder.info.splits[split].filepaths]
    drops_unlabelled = row.is_multi_label and not keeps_unlabelled
    dataset = read(pieces)
    numbers = np.concatenate(
        [np.arange(first, last, dtype="int64") + starts[split] for split, first, last in pieces]
    )
    if drops_unlabelled:
        numbers = np.array([number for number, _ in dataset.as_numpy_iterator()], "int64")
    return Source(
        as_examples(dataset),
        _class_names(builder, row),
        numbers,
        numbered_ids([*starts], [*starts.values()]),
        scale=row.scale,
        read_range=read_range,
        has_masks=row.mask is not None,
        record_files=tuple(map(str, files)),
        version=builder.info.full_name,
    )


def _payload(row, features):
    if row.mask is None:
        return features["image"]
    mask = tf.io.decode_png(features[row.mask], channels=1) - 1
    return pack(features["image"], tf.io.encode_png(mask))


def _between(pieces, starts, first, last):
    """Yield the parts of `pieces` that contain the examples with numbers from `first` to `last`."""
    for split, start, stop in pieces:
        begin, end = max(start, first - starts[split]), min(stop, last + 1 - starts[split])
        if begin < end:
            yield split, begin, end


def _pieces(builder, expression, index, count):
    """Return one worker's pieces `(split, first, last)` of an expression such as `train[:90%]`.

    If an expression joins several splits with `+`, each is divided among all workers.
    """
    pieces = []
    instruction = tfds.core.ReadInstruction.from_spec(expression)
    for part in instruction.to_absolute(builder.info.splits):
        start = part.from_ or 0
        stop = builder.info.splits[part.splitname].num_examples if part.to is None else part.to
        first, last = (start + (stop - start) * share // count for share in (index, index + 1))
        if last > first:
            pieces.append((part.splitname, first, last))
    if not pieces:
        raise ValueError(
            f"The split {expression} of {builder.name} must have an example for each worker. "
            f"Received: {builder.info.splits}"
        )
    return pieces


def _first_numbers(splits):
    """Return the number of the first example of each split."""
    names = sorted(splits)
    lengths = (splits[name].num_examples for name in names)
    return dict(zip(names, itertools.accumulate(lengths, initial=0), strict=False))


def _label(row, features):
    if callable(row.label):
        return tf.cast(row.label(features), tf.int32)
    label = features[row.label]
    if row.is_multi_label:
        return multi_hot(label, row.num_classes)
    return tf.cast(label, tf.int32)


def _class_names(builder, row):
    if row.class_names:
        return row.class_names
    feature = builder.info.features[row.label]
    # The feature of a multi-label dataset is a sequence of class labels.
    return tuple(getattr(feature, "feature", feature).names)
