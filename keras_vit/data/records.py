"""TFRecord files of encoded images and labels: private datasets, and fast copies of others."""

import hashlib
import pathlib
import struct
import unicodedata

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_vit.data.source import Source
from keras_vit.data.splits import SPLITS, find_parts

# The names of the image and its label: those that TensorFlow Datasets writes, and those of the
# ImageNet files that were made with TensorFlow's scripts.
_FEATURES = (("image", "label"), ("image/encoded", "image/class/label"))
# One class name a line, beside the files: ours, and that of TensorFlow Datasets.
LABEL_FILES = ("labels.txt", "label.labels.txt")
# Bytes before and behind those of a record: its length and two checksums.
_HEAD, _TAIL = 12, 4
# A split that is a part of the files' has so many of each ten records in a row, in this order: some
# records in a row have about the shares of all ten.
_TURNS = 10
_ORDER = (0, 1, 8, 2, 3, 7, 4, 5, 9, 6)
_FILES_AT_ONCE = 16


def records(pattern, split, shard=(0, 1), by_position=False):
    """TFRecord files whose records have an encoded image and the number of its class.

    Args:
        pattern: of the files, as in a shell. `{split}` in it stands for the name of a split;
            without it the records of each file are divided, of ten in a row 7 : 1 : 2. Next to the
            files lies `labels.txt`, one class name per line.
        split: as in `load`.
        shard: `(index, count)`, the part of one worker among so many: whole files where there are
            enough of them.
        by_position: whether to divide as versions before 0.2 did, ten in a row of all files one
            after another; another file then changes the split of records in others.

    Returns:
        A `Source`; an id is the name of a file, `#`, and the place in it.

    Raises:
        ValueError: if there is no such file, one is damaged, or there are no class names.
    """
    files, turns = _find_files(pattern, split)
    turns = turns if by_position else turns[:, _ORDER]
    names, features = _read_class_names(files), _find_features(files[0])
    counts = np.array([count_records(file) for file in files], "int64")
    starts = np.cumsum(counts) - counts
    index, count = shard
    mine = slice(None)
    if len(files) >= count:
        mine, index, count = slice(index, None, count), 0, 1

    # The turn with which each file begins, by its name: a file has the same one whatever others
    # there are, and files of a few records together have their shares.
    firsts = starts if by_position else np.array([_first_turn(file) for file in files], "int64")

    def read_file(file, start, first, file_turns):
        examples = tf.data.TFRecordDataset(file).enumerate(start)
        return examples.filter(
            lambda number, record: _is_wanted(number - start + first, file_turns, index, count, tf)
        )

    arrays = (files[mine], starts[mine], firsts[mine], turns[mine])
    examples = tf.data.Dataset.from_tensor_slices(arrays)
    examples = examples.interleave(
        read_file,
        cycle_length=min(_FILES_AT_ONCE, len(files[mine])),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    numbers = [np.array([], "int64")]
    for length, (_, start, first, file_turns) in zip(
        counts[mine], zip(*arrays, strict=True), strict=True
    ):
        found = np.arange(length)
        is_wanted = _is_wanted(found + first, file_turns, index, count, np)
        numbers.append(found[is_wanted] + start)
    return Source(
        examples.map(lambda number, record: (number, *_parse(record, *features))),
        names,
        np.concatenate(numbers),
        find_id=lambda number: _find_id(files, starts, number),
    )


def _is_wanted(number, turns, index, count, library):
    """Whether a record is of the split, and whether this worker's turn is among those that are.

    It is computed for all of them by NumPy and for each of them by TensorFlow.
    """
    turn = number % _TURNS
    wanted = library.cast(turns, library.int64) if library is tf else turns.astype("int64")
    places = library.cumsum(wanted)
    take = tf.gather if library is tf else np.take
    total = wanted.sum() if library is np else tf.reduce_sum(wanted)
    rank = number // _TURNS * total + take(places, turn) - 1
    return take(turns, turn) & (rank % count == index)


def _first_turn(file):
    name = unicodedata.normalize("NFC", pathlib.Path(file).name)
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[0] % _TURNS


def count_records(path):
    """How many records a TFRecord file has, by the lengths in it alone.

    Raises:
        ValueError: if the file is damaged or of another format.
    """
    path = pathlib.Path(path)
    size, place, count = path.stat().st_size, 0, 0
    # Without a buffer, which would read all of what is skipped here.
    with path.open("rb", buffering=0) as file:
        while place < size:
            file.seek(place)
            head = file.read(_HEAD)
            place += len(head) + _TAIL
            place += struct.unpack("<Q", head[:8])[0] if len(head) == _HEAD else size
            count += 1
    if place != size:
        raise ValueError(
            "`tfrecord:PATTERN` must name complete TFRecord files without compression. "
            f"Received: {str(path)!r}, which is damaged behind its record {count - 1}"
        )
    return count


def _find_files(pattern, split):
    """The files, and for each of them which of ten records in a row are wanted."""
    path = pathlib.Path(pattern).expanduser()
    if "{split}" in pattern:
        found = {name: _glob(str(path).replace("{split}", name)) for name in SPLITS}
        given = {name: files for name, files in found.items() if files}
    else:
        given = {"train": _glob(str(path))} if _glob(str(path)) else {}
    if not given:
        raise ValueError(
            f"`tfrecord:PATTERN` must name TFRecord files. Received: {pattern!r}, without any"
        )
    files, turns = [], []
    for name, paths in given.items():
        wanted = np.zeros(_TURNS, bool)
        for part, start, stop in find_parts(split, given):
            if part == name:
                wanted[round(start * _TURNS) : round(stop * _TURNS)] = True
        if wanted.any():
            files += paths
            turns += [wanted] * len(paths)
    return np.array(files), np.array(turns)


def _glob(pattern):
    """Files of a pattern, without those that lie beside TFRecord files."""
    found = [pathlib.Path(path) for path in sorted(tf.io.gfile.glob(pattern))]
    return [
        str(path)
        for path in found
        if not (path.name in LABEL_FILES or path.suffix == ".json" or path.name[0] == ".")
    ]


def _read_class_names(files):
    """The class names next to the files, which must be the same in each of their folders."""
    folders = sorted({pathlib.Path(file).parent for file in files})
    names = {folder: _class_names_in(folder) for folder in folders}
    for folder in folders[1:]:
        if names[folder] != names[folders[0]]:
            raise ValueError(
                "The TFRecord files of `tfrecord:PATTERN` must have the same class names. "
                f"Received: different ones in {str(folders[0])!r} and {str(folder)!r}"
            )
    return names[folders[0]]


def _class_names_in(folder):
    paths = [folder / name for name in LABEL_FILES if (folder / name).is_file()]
    try:
        names = tuple(paths[0].read_text(encoding="utf-8").splitlines()) if paths else ()
    except UnicodeDecodeError:
        names = ()
    if not names:
        raise ValueError(
            "`tfrecord:PATTERN` needs a text file `labels.txt` beside the TFRecord files, with a "
            f"class name a line. Received: {str(folder)!r}, which has none"
        )
    return names


def _find_features(file):
    try:
        record = next(iter(tf.data.TFRecordDataset(file).take(1)), None)
        found = set() if record is None else set(_features_of(record))
    except (tf.errors.OpError, DecodeError) as error:
        raise ValueError(
            "`tfrecord:PATTERN` must name TFRecord files of `tf.train.Example`s. "
            f"Received: {str(file)!r}"
        ) from error
    for image, label in _FEATURES:
        if {image, label} <= found:
            return image, label
    raise ValueError(
        "The records of `tfrecord:PATTERN` must have the features "
        f"{' or '.join(map(str, _FEATURES))}. Received: {str(file)!r} with {sorted(found)}"
    )


def _features_of(record):
    return tf.train.Example.FromString(record.numpy()).features.feature


def _parse(record, image, label):
    features = {
        image: tf.io.FixedLenFeature((), tf.string),
        label: tf.io.FixedLenFeature((), tf.int64),
    }
    parsed = tf.io.parse_single_example(record, features)
    return parsed[image], tf.cast(parsed[label], tf.int32)


def _find_id(files, starts, number):
    file = int(np.searchsorted(starts, number, side="right")) - 1
    return f"{pathlib.Path(files[file]).name}#{number - starts[file]}"
