"""TFRecord files of encoded images and labels: private datasets, and fast copies of others."""

import functools
import hashlib
import pathlib
import struct
import unicodedata

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_vit.data.digest import RECORD_HEAD, scan_records
from keras_vit.data.skipped import COUNT_FROM_1
from keras_vit.data.sources.base import Source, multi_hot
from keras_vit.data.sources.listing import short_names
from keras_vit.data.sources.records.files import LABEL_FILES, find_record_files
from keras_vit.data.sources.splits import find_parts

# Features of the image and its label: those of TensorFlow Datasets, and those of the ImageNet files
# that the scripts of TensorFlow write.
_FEATURES = (("image", "label"), ("image/encoded", "image/class/label"))
# Index of the second pair.
_SCRIPTS = 1
# Labels of TensorFlow's scripts start at 1. To detect that, at most so many are read: of 1,000
# classes of one size, a given class is missing among them with a probability of 2e-9.
_LABELS_READ = 20_000
# A split of 70 % gets seven of every ten records. The turn of a record, its position modulo 10,
# determines its split. This order mixes the splits, so that a file of
# fewer than ten records is divided about right, too.
_TURNS = 10
_ORDER = (0, 1, 8, 2, 3, 7, 4, 5, 9, 6)
_FILES_AT_ONCE = 16


def records(pattern, split, shard=(0, 1), has_lists=False):
    """Find the records of a split; each has an encoded image and the number of its class.

    Args:
        pattern: pattern of the files, as in a shell. `{split}` in it stands for the name of a
            split, such as `val`; without it each ten consecutive records of a file are divided
            7 : 1 : 2. A file `labels.txt` next to them has one class name per line.
        split: as in `load`.
        shard: `(index, count)`, the share of one worker: whole files if there are at least `count`.
        has_lists: whether an image may have several labels or none.

    Returns:
        A `Source`; ids are the name of a file (its path, if names repeat), `#`, and the position in
        it. If some files are named like TFRecord files, the others are counted in `left_out`;
        otherwise all files are taken.

    Raises:
        ValueError: if there is no such file, one is missing or damaged, one belongs to two splits,
            there are no class names, or labels start at 1.
    """
    given, left_out = find_record_files(pattern)
    every, files, turns = _find_files(given, split)
    turns = turns[:, _ORDER]
    names = _read_class_names(files)
    counts = np.array([scan_records(file)[0] for file in files], "int64")
    if not counts.any():
        raise ValueError(
            "The TFRecord files of `tfrecord:PATTERN` must have records. "
            f"Received: {pattern!r}, split={split!r}, whose files are empty"
        )
    # For each file, the rank of each turn among the turns of the split, -1 for others, and their
    # number.
    ranks, totals = np.where(turns, turns.cumsum(axis=1) - 1, -1), turns.sum(axis=1)
    kinds = np.array([_find_features(file) for file in files], "int32")
    if _SCRIPTS in kinds and not has_lists:
        _check_first_label(every, names)
    starts = np.cumsum(counts) - counts
    index, count = shard
    mine = slice(None)
    if len(files) >= count:
        mine, index, count = slice(index, None, count), 0, 1

    # The turn of a file's first record depends on the file's name alone. So other files do not
    # change it, and a dataset of many small files is still divided 7 : 1 : 2.
    firsts = np.array([_first_turn(file) for file in files], "int64")

    def is_wanted(place, ranks, total):
        """Return whether records belong to the split and this worker, in NumPy or TensorFlow."""
        rank = ranks[place % _TURNS]
        return (rank >= 0) & ((place // _TURNS * total + rank) % count == index)

    def read_file(skipped, file, start, first, ranks, total, kind):
        examples = tf.data.TFRecordDataset(file).skip(skipped).enumerate(start + skipped)
        examples = examples.filter(
            lambda number, record: is_wanted(number - start + first, ranks, total)
        )
        # The pipeline would count an error as an image; it reports missing numbers as skipped.
        length = len(names) if has_lists else None
        examples = examples.map(lambda number, record: (number, *_parse(record, kind, length)))
        return examples.ignore_errors()

    columns = starts[mine], firsts[mine], ranks[mine], totals[mine]
    table = (files[mine], *columns, kinds[mine])

    def read(first=0, last=None):
        """Read the files with the numbers from `first` to `last`, from the former on."""
        ends = starts[mine] + counts[mine]
        taken = (ends > first) & (starts[mine] <= (ends.max() if last is None else last))
        skipped = np.maximum(first - starts[mine], 0)
        rows = tf.data.Dataset.from_tensor_slices(tuple(x[taken] for x in (skipped, *table)))
        return rows.interleave(
            read_file,
            cycle_length=min(_FILES_AT_ONCE, max(int(taken.sum()), 1)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    numbers = [np.array([], "int64")]
    for length, start, first, *turns_of_file in zip(counts[mine], *columns, strict=True):
        places = np.arange(length)
        numbers.append(start + places[is_wanted(places + first, *turns_of_file)])
    names_of_files = short_names(every)
    return Source(
        read(),
        names,
        np.concatenate(numbers),
        find_id=lambda number: _find_id(files, names_of_files, starts, number),
        has_no_splits="{split}" not in pattern,
        left_out=left_out,
        near=read,
        record_files=tuple(files[mine].tolist()),
    )


lists = functools.partial(records, has_lists=True)


def _first_turn(file):
    name = unicodedata.normalize("NFC", pathlib.Path(file).name)
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[0] % _TURNS


def _find_files(given, split):
    """Return all files, those of a split, and which of ten consecutive records belong to it."""
    files, turns = [], []
    for name, paths in given.items():
        wanted = np.zeros(_TURNS, bool)
        for part, start, stop in find_parts(split, given):
            if part == name:
                wanted[round(start * _TURNS) : round(stop * _TURNS)] = True
        if wanted.any():
            files += paths
            turns += [wanted] * len(paths)
    every = [path for paths in given.values() for path in paths]
    return every, np.array(files), np.array(turns)


def _read_class_names(files):
    """Return the class names next to the files, the same in each of their folders."""
    first, *others = sorted({pathlib.Path(file).parent for file in files})
    names = _class_names_in(first)
    for folder in others:
        if _class_names_in(folder) != names:
            raise ValueError(
                "The TFRecord files of `tfrecord:PATTERN` must have the same class names. "
                f"Received: different ones in {str(first)!r} and {str(folder)!r}"
            )
    return names


def _class_names_in(folder):
    paths = [folder / name for name in LABEL_FILES if (folder / name).is_file()]
    try:
        names = tuple(paths[0].read_text(encoding="utf-8-sig").splitlines()) if paths else ()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The file of class names must be in UTF-8. Received: {str(paths[0])!r} ({error})"
        ) from error
    if not names:
        raise ValueError(
            "`tfrecord:PATTERN` needs a text file `labels.txt` next to the TFRecord files, with "
            f"one class name per line. Received: {str(folder)!r}, which has none"
        )
    return names


def _find_features(file):
    """Return the index in `_FEATURES` of the features of the first record of a file."""
    with pathlib.Path(file).open("rb") as stream:
        head = stream.read(RECORD_HEAD)
        if not head:
            return 0
        record = stream.read(struct.unpack("<Q", head[:8])[0])
    try:
        found = set(tf.train.Example.FromString(record).features.feature)
    except DecodeError as error:
        raise ValueError(
            "`tfrecord:PATTERN` must name TFRecord files of `tf.train.Example`s. "
            f"Received: {str(file)!r}"
        ) from error
    for kind, names in enumerate(_FEATURES):
        if set(names) <= found:
            return kind
    raise ValueError(
        "The records of `tfrecord:PATTERN` must have the features "
        f"{' or '.join(map(str, _FEATURES))}. Received: {str(file)!r} with {sorted(found)}"
    )


def _check_first_label(files, class_names):
    """Raise an error if labels seem to start at 1, and the first name is not `background`."""
    if class_names[0].casefold() == "background":
        return
    count = len(class_names)
    # If records are sorted by class, the first and the last class are in the first and last file.
    records = tf.data.TFRecordDataset([files[0], *files[:0:-1]])
    labels = records.map(lambda record: _parse(record, _SCRIPTS)[1]).ignore_errors()
    labels = labels.filter(lambda label: label >= 0)
    for number, label in enumerate(labels.as_numpy_iterator()):
        # After so many, the label 0 may be absent by chance.
        if label == 0 or number == _LABELS_READ:
            return
        if label == count:
            break
    raise ValueError(
        "`image/class/label` must start at 0. "
        f"Received: no label 0 in {files[0]!r} and other files {COUNT_FROM_1}"
    )


def _parse(record, kind, num_classes=None):
    """Return the image and the label of a record; b"" or -1 unless it has exactly one of them.

    With `num_classes` the label is that of `multi_hot`.
    """

    def parse(image, label):
        features = {image: tf.io.VarLenFeature(tf.string), label: tf.io.VarLenFeature(tf.int64)}
        parsed = tf.io.parse_single_example(record, features)
        labels = parsed[label].values
        label = multi_hot(labels, num_classes) if num_classes else _only(labels, -1)
        return _only(parsed[image].values, b""), label

    image, label = tf.switch_case(
        tf.convert_to_tensor(kind), [functools.partial(parse, *names) for names in _FEATURES]
    )
    if num_classes:
        return image, label
    # The cast would turn 2**32 into 0.
    return image, tf.cast(tf.clip_by_value(label, -1, tf.int32.max), tf.int32)


def _only(values, otherwise):
    default = tf.constant(otherwise, values.dtype)
    return tf.cond(tf.size(values) == 1, lambda: values[0], lambda: default)


def _find_id(files, names, starts, number):
    file = int(np.searchsorted(starts, number, side="right")) - 1
    return f"{names[files[file]]}#{number - starts[file]}"
