"""TFRecord files of encoded images and labels: private datasets, and fast copies of others."""

import contextlib
import pathlib
import struct

import numpy as np
import tensorflow as tf
import tqdm
from google.protobuf.message import DecodeError

from keras_vit.data.source import Source
from keras_vit.data.splits import SPLITS, find_parts

# The names of the image and its label: those that TensorFlow Datasets writes, and those of the
# ImageNet files that were made with TensorFlow's scripts.
_FEATURES = (("image", "label"), ("image/encoded", "image/class/label"))
# One class name a line, beside the files: ours, and that of TensorFlow Datasets.
_LABEL_FILES = ("labels.txt", "label.labels.txt")
# Bytes before and behind those of a record: its length and two checksums.
_HEAD, _TAIL = 12, 4
# A split that is a part of the files' has so many of each ten records in a row.
_TURNS = 10
_FILES_AT_ONCE = 16


def records(pattern, split, shard=(0, 1)):
    """TFRecord files whose records have an encoded image and the number of its class.

    Args:
        pattern: of the files, as in a shell. `{split}` in it stands for the name of a split;
            without it the records are divided, of each ten in a row 7 : 1 : 2. Beside the files
            lies `labels.txt`, a class name a line.
        split: as in `load`.
        shard: `(index, count)`, the part of one worker among so many: whole files where there are
            enough of them.

    Returns:
        A `Source`; an id is the name of a file, `#`, and the place in it.

    Raises:
        ValueError: if there is no such file, one is damaged, or there are no class names.
    """
    files, turns = _find_files(pattern, split)
    names, features = _read_class_names(files[0]), _find_features(files[0])
    counts = np.array([count_records(file) for file in files], "int64")
    starts = np.cumsum(counts) - counts
    index, count = shard
    mine = slice(None)
    if len(files) >= count:
        mine, index, count = slice(index, None, count), 0, 1

    def read_file(file, start, file_turns):
        examples = tf.data.TFRecordDataset(file).enumerate(start)
        return examples.filter(
            lambda number, record: _is_wanted(number, file_turns, index, count, tf)
        )

    examples = tf.data.Dataset.from_tensor_slices((files[mine], starts[mine], turns[mine]))
    examples = examples.interleave(
        read_file,
        cycle_length=min(_FILES_AT_ONCE, len(files[mine])),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    numbers = [np.array([], "int64")]
    for start, length, file_turns in zip(starts[mine], counts[mine], turns[mine], strict=True):
        found = np.arange(start, start + length)
        numbers.append(found[_is_wanted(found, file_turns, index, count, np)])
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
        if not (path.name in _LABEL_FILES or path.suffix == ".json" or path.name[0] == ".")
    ]


def _read_class_names(file):
    folder = pathlib.Path(file).parent
    for name in _LABEL_FILES:
        if (folder / name).is_file():
            return tuple((folder / name).read_text(encoding="utf-8").splitlines())
    raise ValueError(
        "`tfrecord:PATTERN` needs a file `labels.txt` beside the TFRecord files, with a class name "
        f"a line. Received: {str(folder)!r}, which has none"
    )


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


def write_records(source, folder, split, num_files=1):
    """Writes a split of a dataset into TFRecord files, shuffled, and `labels.txt` beside them.

    They are read as `tfrecord:FOLDER/{split}-*`. Images stay encoded as they are; what is broken is
    copied too.

    Args:
        source: the examples, of `keras_vit.data.datasets.find_source`.
        folder: path of the directory, made where it is not there.
        split: its name in the names of the files.
        num_files: how many files; several workers want as many, or more.

    Returns:
        A list of the files' paths.

    Raises:
        ValueError: if files of the split are there, or other class names, or the dataset's images
            have several labels or pixels that are scaled.
    """
    folder = pathlib.Path(folder).expanduser()
    labels = "".join(f"{name}\n" for name in source.class_names)
    _check_source(source, num_files)
    _check_target(folder, split, labels)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{split}-{i:05d}-of-{num_files:05d}.tfrecord" for i in range(num_files)]
    partial = [path.with_name(f".{path.name}.partial") for path in paths]
    try:
        _write(source, partial)
        for path, complete in zip(partial, paths, strict=True):
            path.replace(complete)
    finally:
        for path in partial:
            path.unlink(missing_ok=True)
    (folder / _LABEL_FILES[0]).write_text(labels, encoding="utf-8")
    return paths


def _write(source, paths):
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(str(path))) for path in paths]
        examples = source.examples.shuffle(source.shuffle_buffer, seed=0)
        progress = tqdm.tqdm(examples.as_numpy_iterator(), total=source.num_examples, unit="image")
        for place, (_, payload, label) in enumerate(progress):
            image = source.read(payload)
            image = image.numpy() if hasattr(image, "numpy") else image
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writers[place % len(writers)].write(example.SerializeToString())


def _check_source(source, num_files):
    if num_files < 1:
        raise ValueError(f"`num_files` must be at least 1. Received: num_files={num_files}")
    _, _, label = source.examples.element_spec
    if source.scale != 1 or label.shape.rank != 0:
        raise ValueError(
            "`source` must have one label an image and pixels from 0 to 255. Received: "
            f"scale={source.scale}, labels of shape {label.shape}"
        )


def _check_target(folder, split, text):
    there = sorted(folder.glob(f"{split}-*.tfrecord"))
    if there:
        raise ValueError(
            "`folder` must not hold files of the split yet. "
            f"Received: folder={str(folder)!r} with {there[0].name}"
        )
    labels = folder / _LABEL_FILES[0]
    if labels.exists() and labels.read_text(encoding="utf-8") != text:
        raise ValueError(
            "The class names in `folder` must be those of the dataset. "
            f"Received: {str(labels)!r} with others"
        )
