"""Read and write TFRecord files of encoded images and labels."""

import collections
import contextlib
import functools
import glob
import hashlib
import logging
import os
import pathlib
import re
import unicodedata

import numpy as np
import tensorflow as tf
import tqdm

from keras_vit.core.files import replacing
from keras_vit.data.digest import scan_records
from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.folder import short_names
from keras_vit.data.sources.source import Source, log_once, multi_hot, numbered_ids
from keras_vit.data.sources.splits import SPLIT_NAMES, SPLITS, describe_splits, split_ranges

# Names of the features with the image and with the label: first the name in TensorFlow Datasets,
# then the name in the ImageNet files that TensorFlow's scripts write.
_IMAGES, _LABELS = ("image", "image/encoded"), ("label", "image/class/label")
# Names of the file with one class name per line, in this package and in TensorFlow Datasets.
LABEL_FILES = ("labels.txt", "label.labels.txt")
# Usual names of TFRecord files.
_RECORD_NAME = re.compile(r".*(\.(tf_?)?rec(ord)?s?|-\d+-of-\d+)(\.gz)?", re.IGNORECASE)
# Names of files such as `train-00001-of-00005.tfrecord`.
_SHARD = re.compile(r"(.*-)\d+-of-(\d+)((?:\.\w+)*)")
# A split of 70 % gets seven of every ten records. The turns of the records of a file count from 0
# to 9 over and over, and determine their splits. This order of turns mixes the splits, so that even
# files with fewer than ten records are divided roughly in proportion.
_TURNS = 10
_ORDER = (0, 1, 8, 2, 3, 7, 4, 5, 9, 6)
_FILES_AT_ONCE = 16


def records(pattern, split, shard=(0, 1), has_lists=False):
    """Find the records of a split; each has an encoded image and the number of its class.

    Args:
        pattern: pattern of the files, as in a shell. `{split}` stands for the name of a split, such
            as `val`. Without `{split}`, every ten consecutive records of a file are divided
            7 : 1 : 2. The folder of the files has a file `labels.txt` with one class name per line.
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
    present, left_out = _find_files(pattern)
    files, turns = _files_of(present, split)
    turns = turns[:, _ORDER]
    names = _read_class_names(files)
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
    firsts = np.array([_first_turn(file) for file in files], "int64")

    def is_wanted(position, ranks, total):
        """Whether records belong to the split and to this worker; for NumPy or TensorFlow."""
        rank = ranks[position % _TURNS]
        return (rank >= 0) & ((position // _TURNS * total + rank) % count == index)

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
        has_no_splits="{split}" not in pattern,
        left_out=left_out,
        read_range=read,
        record_files=tuple(files[own_files].tolist()),
    )


lists = functools.partial(records, has_lists=True)


def _first_turn(file):
    name = unicodedata.normalize("NFC", pathlib.Path(file).name)
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[0] % _TURNS


def _find_files(pattern):
    """Return the sorted files of each split that exists, and a count of the other files."""
    path = str(pathlib.Path(pattern).expanduser())
    names = SPLIT_NAMES if "{split}" in path else {"train": ("",)}
    found = {
        split: [_glob(path.replace("{split}", name)) for name in known]
        for split, known in names.items()
    }
    # `dev` also matches `device-train`. So a file that matches the first name of a split (`train`)
    # does not belong to other splits of which it matches a synonym (`dev`).
    first = set().union(*(sets[0] for sets in found.values()))
    present = {split: sets[0].union(*sets[1:]) - (first - sets[0]) for split, sets in found.items()}
    all_files = [file for files in present.values() for file in files]
    if twice := [file for file, count in collections.Counter(all_files).items() if count > 1]:
        raise ValueError(
            "A file of `tfrecord:PATTERN` must belong to one split. "
            f"Received: {pattern!r}, with {min(twice)!r} in several splits"
        )
    # If no file has a usual name, all files are TFRecord files.
    named = {file for file in all_files if _RECORD_NAME.fullmatch(file)} or set(all_files)
    suffixes = (pathlib.Path(file).suffix or "without a suffix" for file in {*all_files} - named)
    left_out = collections.Counter(f"not a TFRecord file ({suffix})" for suffix in suffixes)
    present = {split: sorted(files & named) for split, files in present.items() if files & named}
    if not present:
        raise ValueError(
            f"`tfrecord:PATTERN` must name TFRecord files. Received: {pattern!r}, without files"
        )
    for files in present.values():
        _check_shards(files)
    if len(present) < len(SPLITS):
        log_once(logging.INFO, f"{pattern}: {describe_splits({split: split for split in present})}")
    return present, left_out


def _glob(pattern):
    """Return the files that match a pattern, except class names, JSON files and hidden files."""
    paths = map(pathlib.Path, tf.io.gfile.glob(pattern))
    return {
        str(path)
        for path in paths
        if not (path.name in LABEL_FILES or path.suffix == ".json" or path.name[0] == ".")
    }


def _check_shards(files):
    """Raise `ValueError` if some of the files `-NNNNN-of-MMMMM` are missing, or `MMMMM` differs."""
    totals = collections.defaultdict(set)
    for file in files:
        if match := _SHARD.fullmatch(file):
            head, total, tail = match.groups()
            totals[pathlib.Path(head), tail].add(total)
    for (head, tail), values in totals.items():
        pattern = f"{glob.escape(head.name)}*-of-{min(values)}{tail}"
        count = len([*head.parent.glob(pattern)])
        if count != int(min(values)) or len(values) > 1:
            raise ValueError(
                "All files `-NNNNN-of-MMMMM` of `tfrecord:PATTERN` must exist and have the same "
                f"MMMMM. Received: {count} files {str(head)!r}, "
                f"of {' and of '.join(sorted(values))}"
            )


def _files_of(present, split):
    """Return the files of a split, and for each file the turns that belong to the split."""
    files, turns = [], []
    for name, paths in present.items():
        wanted = np.zeros(_TURNS, bool)
        for part, start, stop in split_ranges(split, present):
            if part == name:
                wanted[round(start * _TURNS) : round(stop * _TURNS)] = True
        if wanted.any():
            files += paths
            turns += [wanted] * len(paths)
    return np.array(files), np.array(turns)


def _read_class_names(files):
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
