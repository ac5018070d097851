"""Find the files of each split by a pattern, and divide their examples if splits are missing."""

import collections
import glob
import hashlib
import logging
import pathlib
import re
import unicodedata

import numpy as np
import tensorflow as tf

from keras_vit.data.sources.source import log_once
from keras_vit.data.sources.splits import SPLIT_NAMES, SPLITS, describe_splits, split_ranges

# Names of the file with one class name per line, in this package and in TensorFlow Datasets.
LABEL_FILES = ("labels.txt", "label.labels.txt")
# Names of files such as `train-00001-of-00005.tfrecord`.
_SHARD = re.compile(r"(.*-)\d+-of-(\d+)((?:\.\w+)*)")
# A range of numbers in a pattern, such as `{000..127}`.
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
# A split of 70 % gets seven of every ten examples. The turns of the examples of a file count from 0
# to 9 over and over, and determine their splits. This order of turns mixes the splits, so that even
# files with fewer than ten examples are divided roughly in proportion.
TURNS = 10
_ORDER = (0, 1, 8, 2, 3, 7, 4, 5, 9, 6)


def find_files(pattern, kind, usual_name):
    """Find the files of each split.

    Args:
        pattern: pattern of the files, as in a shell. `{split}` stands for the name of a split, such
            as `val`, and `{000..127}` for each of these numbers. A directory, or its folder `data`
            as on the Hugging Face Hub, stands for the files in it with the name of a split.
        kind: name of the kind of dataset, for errors.
        usual_name: compiled expression of the usual paths of files. If a file matches, the others
            are left out.

    Returns:
        `(present, options)`: the sorted files of each split that exists, and the arguments
        `left_out` and `has_no_splits` of `Source`.

    Raises:
        ValueError: if no file is found, a file is missing, or a file belongs to two splits.
    """
    path = pathlib.Path(pattern).expanduser()
    if path.is_dir():
        path = (path / "data" if (path / "data").is_dir() else path) / "*{split}*"
    path = str(path)
    names = SPLIT_NAMES if "{split}" in path else {"train": ("",)}
    found = {
        split: [_glob_ranges(path.replace("{split}", name), kind) for name in known]
        for split, known in names.items()
    }
    # `dev` also matches `device-train`. So a file that matches the first name of a split (`train`)
    # does not belong to other splits of which it matches a synonym (`dev`).
    first = set().union(*(sets[0] for sets in found.values()))
    present = {split: sets[0].union(*sets[1:]) - (first - sets[0]) for split, sets in found.items()}
    all_files = [file for files in present.values() for file in files]
    if twice := [file for file, count in collections.Counter(all_files).items() if count > 1]:
        raise ValueError(
            f"A file of `{kind}:PATTERN` must belong to one split. "
            f"Received: {pattern!r}, with {min(twice)!r} in several splits"
        )
    # If no file has a usual name, all files are read.
    named = {file for file in all_files if usual_name.fullmatch(file)} or set(all_files)
    suffixes = (pathlib.Path(file).suffix or "without a suffix" for file in {*all_files} - named)
    left_out = collections.Counter(f"not a file of `{kind}` ({suffix})" for suffix in suffixes)
    present = {split: sorted(files & named) for split, files in present.items() if files & named}
    if not present:
        raise ValueError(f"`{kind}:PATTERN` must name files. Received: {pattern!r}, without files")
    for files in present.values():
        _check_shards(files, kind)
    if len(present) < len(SPLITS):
        log_once(logging.INFO, f"{pattern}: {describe_splits({split: split for split in present})}")
    return present, {"left_out": left_out, "has_no_splits": "{split}" not in path}


def _glob_ranges(pattern, kind):
    """Return the files that match a pattern; each number of a range must have a file."""
    patterns = [pattern]
    while match := _RANGE.search(patterns[0]):
        first, last = match.groups()
        numbers = [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
        patterns = [p.replace(match[0], number, 1) for p in patterns for number in numbers]
    found = {path: _glob(path) for path in patterns}
    files = set().union(*found.values())
    if files and (missing := [path for path, matches in found.items() if not matches]):
        raise ValueError(
            f"All files of a range in `{kind}:PATTERN` must exist. Received: {pattern!r}, "
            f"without {missing[0]!r}"
        )
    return files


def _glob(pattern):
    """Return the files that match a pattern, except class names, JSON files and hidden files."""
    paths = map(pathlib.Path, tf.io.gfile.glob(pattern))
    return {
        str(path)
        for path in paths
        if not (path.name in LABEL_FILES or path.suffix == ".json" or path.name[0] == ".")
    }


def _check_shards(files, kind):
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
                f"All files `-NNNNN-of-MMMMM` of `{kind}:PATTERN` must exist and have the same "
                f"MMMMM. Received: {count} files {str(head)!r}, "
                f"of {' and of '.join(sorted(values))}"
            )


def files_of(present, split):
    """Return the files of a split, and for each file whether each turn belongs to the split."""
    files, turns = [], []
    for name, paths in present.items():
        wanted = np.zeros(TURNS, bool)
        for part, start, stop in split_ranges(split, present):
            if part == name:
                wanted[round(start * TURNS) : round(stop * TURNS)] = True
        if wanted.any():
            files += paths
            turns += [wanted] * len(paths)
    return np.array(files), np.array(turns)[:, _ORDER]


def first_turn(file):
    """Return the turn of the first example of a file, a hash of the name of the file."""
    name = unicodedata.normalize("NFC", pathlib.Path(file).name)
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[0] % TURNS


def numbers_of(files, turns, counts):
    """Return the numbers of the examples of a split, one array per file of `files_of`.

    Args:
        files: the files that contain the examples of the split, and maybe of other splits.
        turns: for each file, whether each turn belongs to the split.
        counts: number of examples in each file.
    """
    arrays, start = [], 0
    for file, wanted, count in zip(files, turns, counts, strict=True):
        positions = np.arange(count, dtype="int64")
        arrays.append(start + positions[wanted[(positions + first_turn(file)) % TURNS]])
        start += count
    return arrays
