"""Read and write TFRecord files of encoded images and labels."""

import contextlib
import functools
import logging
import os
import pathlib
import re

import numpy as np
import tensorflow as tf
import tqdm

from keras_vit.core.files import replacing
from keras_vit.data.digest import scan_records
from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.folder import short_names
from keras_vit.data.sources.patterns import LABEL_FILES, TURNS, files_of, find_files, first_turn
from keras_vit.data.sources.source import Source, multi_hot, numbered_ids

# Names of the features with the image and with the label: first the name in TensorFlow Datasets,
# then the name in the ImageNet files that TensorFlow's scripts write.
_IMAGES, _LABELS = ("image", "image/encoded"), ("label", "image/class/label")
# Usual names of TFRecord files.
_RECORD_NAME = re.compile(r".*(\.(tf_?)?rec(ord)?s?|-\d+-of-\d+)(\.gz)?", re.IGNORECASE)
_FILES_AT_ONCE = 16


def records(pattern, split, shard=(0, 1), has_lists=False):
    """Find the records of a split; each has an encoded image and the number of its class.

    Args:
        pattern: pattern of the files, as in a shell. `{split}` stands for the name of a split, such
            as `val`: see `find_files`. Without `{split}`, every ten consecutive records of a file
            are divided 7 : 1 : 2. The folder of the files has a file `labels.txt` with one class
            name per line.
        split: as in `load`.
        shard: `(index, count)`, the share of one worker. If there are at least `count` files, each
            worker reads whole files.
        has_lists: whether an image may have several labels or none.

    Returns:
        A `Source`. The id of an example is `FILE#POSITION`, with the name of the file, or with its
        path if several files have the name. If some files are named like TFRecord files, the other
        files are counted in `left_out`; otherwise all files are read.

    Raises:
        ValueError: if no file is found, a file is missing or damaged, a file belongs to two splits,
            or folders have different class names.
    """
    present, options = find_files(pattern, "tfrecord", _RECORD_NAME)
    files, turns = files_of(present, split)
    names = read_class_names(files)
    counts = np.array([scan_records(file)[0] for file in files], "int64")
    # For each file: the rank of each turn among the turns of the requested split (-1 for turns of
    # other splits), and the number of turns of the requested split.
    ranks, totals = np.where(turns, turns.cumsum(axis=1) - 1, -1), turns.sum(axis=1)
    starts = np.cumsum(counts) - counts
    index, count = shard
    own_files = slice(None)
    if len(files) >= count:
        own_files, index, count = slice(index, None, count), 0, 1

    # The turn of the first record of a file is a hash of the file's name. So adding files changes
    # no turns, and a dataset of many files with one record each is divided 7 : 1 : 2 as well.
    firsts = np.array([first_turn(file) for file in files], "int64")

    def is_wanted(position, ranks, total):
        """Whether records belong to the split and to this worker; for NumPy or TensorFlow."""
        rank = ranks[position % TURNS]
        return (rank >= 0) & ((position // TURNS * total + rank) % count == index)

    def read_file(skipped, file, start, first, ranks, total):
        examples = tf.data.TFRecordDataset(file).skip(skipped).enumerate(start + skipped)
        examples = examples.filter(
            lambda number, record: is_wanted(number - start + first, ranks, total)
        )
        # If a file is damaged, stop reading it: `Dataset` reports the missing examples.
        length = len(names) if has_lists else None
        examples = examples.map(lambda number, record: (number, *_parse(record, length)))
        return examples.ignore_errors()

    columns = tuple(column[own_files] for column in (starts, firsts, ranks, totals))
    table = (files[own_files], *columns)

    def read(first=0, last=None):
        """Read the files with the examples `first` to `last`, without examples before `first`."""
        begins = starts[own_files]
        ends = begins + counts[own_files]
        is_needed = (ends > first) & (begins <= (ends.max() if last is None else last))
        skipped = np.maximum(first - begins, 0)
        rows = tf.data.Dataset.from_tensor_slices(tuple(x[is_needed] for x in (skipped, *table)))
        return rows.interleave(
            read_file,
            cycle_length=min(_FILES_AT_ONCE, max(int(is_needed.sum()), 1)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    numbers = [np.array([], "int64")]
    for length, start, first, *turns_of_file in zip(counts[own_files], *columns, strict=True):
        positions = np.arange(length)
        numbers.append(start + positions[is_wanted(positions + first, *turns_of_file)])
    short = short_names(file for paths in present.values() for file in paths)
    return Source(
        read(),
        names,
        np.concatenate(numbers),
        numbered_ids([short[file] for file in files], starts),
        read_range=read,
        record_files=tuple(files[own_files].tolist()),
        **options,
    )


lists = functools.partial(records, has_lists=True)


def read_class_names(files):
    """Return the class names, which must be the same in each folder of files."""
    names_in = {}
    for folder in sorted({pathlib.Path(file).parent for file in files}):
        paths = [folder / name for name in LABEL_FILES]
        path = next(filter(pathlib.Path.is_file, paths), paths[0])
        names_in[str(folder)] = tuple(path.read_text(encoding="utf-8-sig").splitlines())
    names, *others = set(names_in.values())
    if others:
        raise ValueError(
            "The TFRecord files of `tfrecord:PATTERN` must have the same class names. "
            f"Received: different names in {', '.join(names_in)}"
        )
    return names


def _parse(record, num_classes=None):
    """Return the image and the label of a record; b"" or -1 unless it has exactly one of them.

    With `num_classes`, a record may have several labels, which are returned as a multi-hot vector.
    """
    kinds = dict.fromkeys(_IMAGES, tf.string) | dict.fromkeys(_LABELS, tf.int64)
    features = {name: tf.io.VarLenFeature(kind) for name, kind in kinds.items()}
    parsed = tf.io.parse_single_example(record, features)
    images, labels = (
        tf.concat([parsed[name].values for name in names], 0) for names in (_IMAGES, _LABELS)
    )
    if num_classes:
        return _single_value(images, b""), multi_hot(labels, num_classes)
    # Without clipping, the cast would turn 2**32 into the valid label 0.
    label = tf.clip_by_value(_single_value(labels, -1), -1, tf.int32.max)
    return _single_value(images, b""), tf.cast(label, tf.int32)


def _single_value(values, default):
    default = tf.constant(default, values.dtype)
    return tf.cond(tf.size(values) == 1, lambda: values[0], lambda: default)


def write_records(
    source: Source, folder: str | os.PathLike, split: str, num_files: int = 1
) -> list[pathlib.Path]:
    """Shuffle a split of a dataset, and write it to TFRecord files and `labels.txt`.

    `load("tfrecord:FOLDER/{split}-*", ...)` reads these files. Images are not encoded again. Images
    that cannot be decoded are left out and logged.

    Args:
        source: the `Source`, from `keras_vit.data.find_source`.
        folder: path of the directory, created if it does not exist.
        split: name of the split, with which the names of the files begin.
        num_files: number of files, best at least the number of workers that will read the files.

    Returns:
        A list of the paths of the files.

    Raises:
        ValueError: if the directory has files of the split, or other class names; the source is
            multi-label, scaled or has a border; no image can be decoded; or examples are missing.
    """
    folder = pathlib.Path(folder).expanduser()
    labels = "".join(f"{name}\n" for name in source.class_names)
    _check(source, folder, split, labels)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{split}-{i:05d}-of-{num_files:05d}.tfrecord" for i in range(num_files)]
    with contextlib.ExitStack() as stack:
        _write(source, [stack.enter_context(replacing(path)) for path in paths])
    with replacing(folder / LABEL_FILES[0]) as partial_labels:
        partial_labels.write_text(labels, encoding="utf-8")
    return paths


def _write(source, paths):
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(str(path))) for path in paths]
        examples = source.examples.shuffle(source.shuffle_buffer, seed=0)
        progress = tqdm.tqdm(examples.as_numpy_iterator(), total=source.num_examples, unit="image")
        written, read = 0, 0
        for number, payload, label in progress:
            read += 1
            try:
                image = tf.convert_to_tensor(source.read(payload)).numpy()
                decode(image)
            except tf.errors.OpError:
                name = source.find_id(int(number))
                logging.getLogger("keras_vit").warning("left out %s: it cannot be decoded", name)
                continue
            written += 1
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writers[written % len(writers)].write(example.SerializeToString())
    if read != source.num_examples or not written:
        raise ValueError(
            f"All {source.num_examples} examples of the dataset must be read, and some of them "
            f"decoded. Received: {read} read, {written} decoded"
        )


def _check(source, folder, split, text):
    """Raise `ValueError` if files would be replaced, or labels would get a wrong meaning."""
    _, _, label = source.examples.element_spec
    if source.scale != 1 or source.border or label.shape.rank != 0:
        raise ValueError(
            "`source` must have one label per image, pixels from 0 to 255 and no border. Received: "
            f"scale={source.scale}, border={source.border}, labels of shape {label.shape}"
        )
    if existing := sorted(folder.glob(f"{split}-*.tfrecord")):
        raise ValueError(
            "`folder` must not have files of the split yet. "
            f"Received: folder={str(folder)!r} with {existing[0].name}"
        )
    labels = folder / LABEL_FILES[0]
    if labels.exists() and labels.read_text(encoding="utf-8") != text:
        raise ValueError(
            "The class names in `folder` must be those of the dataset. "
            f"Received: {str(labels)!r} with other names"
        )
