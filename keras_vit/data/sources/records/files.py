"""The TFRecord files of a pattern, and their splits."""

import collections
import logging
import os
import pathlib
import re

import tensorflow as tf

from keras_vit.core.text import name_some
from keras_vit.data.logging import log_once
from keras_vit.data.sources.folder_layout import SPLIT_NAMES
from keras_vit.data.sources.splits import SPLITS, describe_parts

# How the names of TFRecord files end.
_RECORD_NAME = re.compile(r".*(\.(tf_?)?rec(ord)?s?|-\d+-of-\d+)(\.gz)?", re.IGNORECASE)
_SHARD = re.compile(r"(.*-)(\d+)-of-(\d+)((?:\.\w+)*)")
# One class name per line, next to the files: ours, and that of TensorFlow Datasets.
LABEL_FILES = ("labels.txt", "label.labels.txt")


def find_record_files(pattern):
    """Find the TFRecord files of each split.

    Args:
        pattern: as in `keras_vit.data.sources.records.tfrecord.records`.

    Returns:
        `(given, left_out)`: a dictionary from the splits that exist to sorted lists of paths,
        `{"train": ...}` for a pattern without `{split}`; and a `collections.Counter` of files that
        are not named as TFRecord files, by their suffix.

    Raises:
        ValueError: if there is no file, a shard is missing, a file belongs to two splits, or a
            split has several names.
    """
    path = str(pathlib.Path(pattern).expanduser())
    given, places = {"train": _glob(path)}, {"train": "each file"}
    if "{split}" in path:
        given, places = _find_named_splits(path)
    given, left_out = _leave_out(given)
    given = {split: files for split, files in given.items() if files}
    if not given:
        raise ValueError(
            f"`tfrecord:PATTERN` must name TFRecord files. Received: {pattern!r}, without any"
        )
    for files in given.values():
        _check_shards([pathlib.Path(file) for file in files])
    if len(given) < len(SPLITS):
        log_once(logging.INFO, f"{pattern}: {describe_parts({s: places[s] for s in given})}")
    return given, left_out


def _find_named_splits(path):
    """Return the files of each split, and the part of the pattern that finds them."""
    known = {file for split in SPLIT_NAMES for file in _glob(path.replace("{split}", split))}
    # The log shows the pattern from the folder or file that is named after the split.
    tail = path[path.rfind(os.sep, 0, path.index("{split}")) + 1 :]
    given, places, splits = {}, {}, {}
    for split, names in SPLIT_NAMES.items():
        name, files = _files_of_split(path, names, known)
        if twice := splits.keys() & files:
            raise ValueError(
                "A file of `tfrecord:PATTERN` must belong to one split. "
                f"Received: {path!r}, with {min(twice)!r} of {splits[min(twice)]} and {split}"
            )
        given[split], places[split] = files, tail.replace("{split}", name)
        splits |= dict.fromkeys(files, split)
    return given, places


def _files_of_split(path, names, known):
    """Return the name of a split that finds all of its files, and the sorted files."""
    found = {name: set(_glob(path.replace("{split}", name))) for name in names}
    for name in names[1:]:
        # It may be part of a word, as `dev` in `device-train`.
        found[name] -= known
    every = set().union(*found.values())
    for name, files in found.items():
        if files == every:
            return name, sorted(files)
    raise ValueError(
        "`{split}` in `tfrecord:PATTERN` must stand for one name of each split. "
        f"Received: {path!r}, with several names of `{names[0]}`: {name_some(sorted(every))}"
    )


def _leave_out(given):
    """Return the TFRecord files of each split, and a count of the other files."""
    every = [pathlib.Path(file) for files in given.values() for file in files]
    others = {str(path): path.suffix for path in every if not _RECORD_NAME.fullmatch(path.name)}
    if len(others) == len(every):
        # Users may have their own names for TFRecord files.
        return given, collections.Counter()
    suffixes = (suffix or "without a suffix" for suffix in others.values())
    left_out = collections.Counter(f"not a TFRecord file ({suffix})" for suffix in suffixes)
    kept = {split: [file for file in files if file not in others] for split, files in given.items()}
    return kept, left_out


def _glob(pattern):
    """Return the files of a pattern, without class names, JSON and hidden files."""
    paths = map(pathlib.Path, sorted(tf.io.gfile.glob(pattern)))
    return [
        str(path)
        for path in paths
        if not (path.name in LABEL_FILES or path.suffix == ".json" or path.name[0] == ".")
    ]


def _check_shards(paths):
    """Refuse incomplete sets of files `-NNNNN-of-MMMMM`, and different `MMMMM`."""
    totals = collections.defaultdict(set)
    for path in paths:
        if match := _SHARD.fullmatch(path.name):
            head, number, total, tail = match.groups()
            totals[path.parent / head, len(number), tail].add(total)
    for (head, digits, tail), found in totals.items():
        total = min(found)
        shards = (f"{head}{i:0{digits}d}-of-{total}{tail}" for i in range(int(total)))
        missing = next((shard for shard in shards if not pathlib.Path(shard).exists()), None)
        if missing or len(found) > 1:
            raise ValueError(
                "The files `-NNNNN-of-MMMMM` of `tfrecord:PATTERN` must be complete and have one "
                f"MMMMM. Received: {str(head)!r}, "
                + (f"without {missing!r}" if missing else f"of {' and of '.join(sorted(found))}")
            )
