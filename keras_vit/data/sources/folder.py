"""Folders of image files: find classes, splits and images.

If splits are missing, images are divided into splits. The folder records this division, so that no
image ever changes its split.
"""

import collections
import contextlib
import hashlib
import itertools
import json
import logging
import os
import pathlib
import unicodedata

import numpy as np
import tensorflow as tf

from keras_vit.core.files import exclusive_lock, replacing
from keras_vit.core.text import printable
from keras_vit.data.images.decoding import looks_decodable, other_format
from keras_vit.data.sources.source import from_arrays, log_once, select_classes
from keras_vit.data.sources.splits import (
    SPLIT_NAMES,
    SPLITS,
    describe_splits,
    split_names,
    split_ranges,
)

# Files with these suffixes are listed as images; the decoder checks their bytes.
SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".npy")
# Number of first bytes that are needed to recognize a format, including HEIC and AVIF.
_HEAD = 32
# Name of the record of the division. It is a hidden file, which is not a class or an image.
RECORD = ".keras_vit_division.json"
_EXPLANATION = (
    "The split (train, validation or test) of each image. Keep this file with the images, so that "
    "every image keeps its split when other images are added or deleted."
)


def folder(path, split, classes=None, shard=(0, 1)):
    """Find the image files of a split, in one folder per class or in `SPLIT/CLASS/`.

    Args:
        path: path of the folder.
        split: as in `load`.
        classes: as in `load`.
        shard: as in `load`.

    Returns:
        A `Source`; ids are paths relative to the folder.

    Raises:
        ValueError: if the folder does not have this layout.
    """
    root = pathlib.Path(path).expanduser()
    present = find_splits(root)
    left_out = _count_others(root, present)
    present = present or {"train": root}
    split_ranges(split, present)
    names = _folders(present["train"])
    # A folder `test` among the classes may be a misplaced split: the model would be trained on it.
    for name in {*names}.union(*(_folders(present["train"] / name) for name in names)):
        if any(_is_named_as(name, split) for split in SPLIT_NAMES):
            raise ValueError(
                "A class, or a folder in a class, must not have the name of a split. "
                f"Received: a folder {name!r} in {str(present['train'])!r}"
            )
    _warn_of_other_divisions(root, _shares(present, "train"))
    if present["train"] != root and len(present) < len(SPLITS):
        folders = {name: f"{split_folder.name}/" for name, split_folder in present.items()}
        log_once(logging.INFO, f"{root}: {describe_splits(folders)}")
    paths, labels = [], []
    for name, split_folder in present.items():
        classes_of_split = {}
        if unknown := sorted(set(_folders(split_folder)) - set(names)):
            raise ValueError(
                f"Classes in {str(split_folder)!r} must be those of `train`. Received: {unknown}"
            )
        for class_folder in (split_folder / class_name for class_name in names):
            images, reasons = list_images(class_folder) if class_folder.is_dir() else ([], {})
            if name == "train" and not images:
                raise ValueError(
                    "Every class must have images: add images or remove the folder. Received: "
                    f"{str(class_folder)!r} without images. {describe_left_out(reasons)}".rstrip()
                )
            classes_of_split[id_of(class_folder, root)] = [id_of(path, root) for path in images]
            left_out.update(reasons)
        files = files_of_split(root, present, name, classes_of_split, split)
        for label, ids in enumerate(files.values()):
            paths += [str(root / id) for id in ids]
            labels += [label] * len(ids)
    options = {
        "has_no_splits": present == {"train": root},
        "samples_by_id": True,
        "left_out": +left_out,
    }
    labels = np.array(labels, "int32")
    return files_source(root, split, paths, labels, names, shard, classes, **options)


def files_source(root, split, paths, labels, names, shard, classes=None, **options):
    """Return a `Source` of image files in a folder; `options` are those of `from_arrays`."""
    if classes is not None:
        keep, labels, names = select_classes(labels, names, classes)
        paths, labels = list(itertools.compress(paths, keep)), labels[keep]
    if not paths:
        raise ValueError(
            f"The split {split!r} of the folder {str(root)!r} must have an image. "
            "Received: too few images; add images, or make the folders train, validation and test, "
            "each with one folder per class"
        )
    return from_arrays(
        np.array(paths),
        labels,
        names,
        find_id=lambda number: id_of(paths[number], root),
        indices=slice(shard[0], None, shard[1]),
        read=tf.io.read_file,
        path_of=lambda number: paths[number],
        **options,
    )


def id_of(path, root):
    """Return the path of a file relative to a folder, in POSIX form."""
    return pathlib.Path(path).relative_to(root).as_posix()


# Layout.


def find_splits(root):
    """Return a dictionary from splits to the folders in `root` with the name of the split."""
    present = {}
    for split in SPLIT_NAMES:
        found = [name for name in _folders(root) if _is_named_as(name, split)]
        if len(found) > 1:
            raise ValueError(
                f"A folder of images must have one folder for the split `{split}`. "
                f"Received: {str(root)!r} with {'/ and '.join(found)}/"
            )
        if found:
            present[split] = root / found[0]
    return present


def _is_named_as(name, split):
    return name.casefold().strip() in SPLIT_NAMES[split]


def _folders(folder, is_hidden=False):
    names = (entry.name for entry in folder.iterdir() if entry.is_dir())
    return sorted(name for name in names if name.startswith(".") == is_hidden)


def _count_others(root, present):
    """Count the files outside of all classes, by reason."""
    left_out = collections.Counter()
    if present:
        for name in sorted(set(_folders(root)) - {folder.name for folder in present.values()}):
            images, reasons = list_images(root / name)
            left_out[f"in {name}/, which is not a split"] = len(images) + reasons.total()
    for folder in {root, *present.values()}:
        files = (entry for entry in folder.iterdir() if not entry.is_dir())
        left_out["outside of a folder of a class"] += sum(file.name != RECORD for file in files)
        # Report hidden folders, because a class may be hidden by mistake.
        left_out.update(f"hidden folder {name}/" for name in _folders(folder, is_hidden=True))
    return left_out


def list_images(folder):
    """List the image files in a folder at every level; links to other folders are followed.

    An image is recognized by its suffix or its first bytes: a JPEG may have the suffix `.jfif` or
    `.JPE`, or no suffix.

    Args:
        folder: path of the folder.

    Returns:
        `(paths, left_out)`: the sorted paths of images, and a `collections.Counter` of the reasons
        why other files are left out. A hidden folder counts as one file.
    """
    paths, left_out = [], collections.Counter()
    for path in _walk(pathlib.Path(folder), ()):
        reason = _reason_to_leave_out(path)
        if reason is None:
            paths.append(str(path))
        else:
            left_out[reason] += 1
    return sorted(paths), left_out


def _walk(folder, parents):
    """Yield the files in a folder at every level. A hidden folder is yielded like a file.

    Links to a parent folder are not followed.
    """
    real_path = os.path.realpath(folder)
    if real_path in parents:
        return
    for entry in os.scandir(folder):
        if entry.is_dir() and not entry.name.startswith("."):
            yield from _walk(pathlib.Path(entry.path), (*parents, real_path))
        elif entry.name != RECORD:
            yield pathlib.Path(entry.path)


def _reason_to_leave_out(path):
    """Return why a file is left out, or `None` for an image in a supported format."""
    if path.name.startswith("."):
        return "hidden"
    try:
        str(path).encode()
    except UnicodeEncodeError:
        # TensorFlow cannot open the file, and its id could not be written to a file.
        return "name is not UTF-8"
    if not path.is_file():
        return "broken link" if path.is_symlink() else "not a regular file"
    if path.suffix.lower() in SUFFIXES:
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return "not readable"
    if looks_decodable(head):
        return None
    return other_format(head) or f"not an image ({path.suffix or 'without a suffix'})"


def describe_left_out(left_out):
    """Describe left-out files in one line, with the most frequent reason first.

    Args:
        left_out: a `collections.Counter` from `list_images`.

    Returns:
        A string, empty if nothing was left out.

    Example:
    >>> describe_left_out(collections.Counter({"not an image (.txt)": 2, "hidden": 1}))
    '3 files or folders are left out: 2 not an image (.txt), 1 hidden'
    """
    if not left_out:
        return ""
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    total = sum(left_out.values())
    subject = "files or folders are" if total > 1 else "file or folder is"
    text = f"{total} {subject} left out: {reasons}"
    # Reasons may contain names of folders that are not printable.
    return printable(text.encode("utf-8", "backslashreplace").decode())


def short_names(files):
    """Map each file to its name or, if several files have this name, to its relative path.

    Paths are relative to a common folder, without `..`, so they are safe as names of output files.
    """
    # If links were resolved, two links to one folder would give two files the same name.
    paths = {file: pathlib.Path(os.path.normpath(pathlib.Path(file).absolute())) for file in files}
    counts = collections.Counter(path.name for path in paths.values())
    common = os.path.commonpath([path.parent for path in paths.values()])
    return {
        file: path.name if counts[path.name] == 1 else path.relative_to(common).as_posix()
        for file, path in paths.items()
    }


# Division.


def files_of_split(root, present, name, classes, split):
    """Choose the files in the folder of one split that belong to the requested split.

    Args:
        root: `pathlib.Path` of the folder.
        present: names of the splits that have folders.
        name: the split in whose folder the files are.
        classes: as in `divide`.
        split: the requested split, as in `load`.

    Returns:
        A dictionary like `classes`, with only the paths that belong to `split`.
    """
    shares = _shares(present, name)
    wanted = set(split_names(split)) & set(shares)
    if not wanted or wanted == set(shares):
        return {folder: paths if wanted else [] for folder, paths in classes.items()}
    splits = divide(root, classes, shares)
    return {
        folder: [path for path in paths if splits[path] in wanted]
        for folder, paths in classes.items()
    }


def _shares(present, source_split):
    """Return which fractions of the split `source_split` of a dataset belong to each split."""
    return {
        name: (start, stop)
        for name in SPLITS
        for part, start, stop in split_ranges(name, present)
        if part == source_split
    }


def divide(root, classes, shares):
    """Divide the files of a folder into splits, such that no file ever changes its split.

    The hash of a file's name chooses its split. If this split already has its share of the class,
    the file goes to the split that lacks most files. The result is recorded in the folder. Recorded
    files keep their splits; files added later are divided in the same way. Copies of a folder
    without a record are divided equally on every machine.

    Args:
        root: `pathlib.Path` of the folder.
        classes: dictionary from the path of each class's folder to the paths of its files, all
            relative to `root` and in POSIX form.
        shares: dictionary from names of splits to fractions `(start, stop)` of each class. The
            first split starts at 0, each other split where the previous split stops, up to 1.

    Returns:
        A dictionary from paths to names of splits.

    Raises:
        ValueError: if the record is damaged.
    """
    with contextlib.ExitStack() as stack:
        # Some file systems have no locks.
        with contextlib.suppress(OSError):
            stack.enter_context(exclusive_lock(root))
        divisions = _read(root)
        key = _describe(shares)
        recorded = divisions.get(key, {})
        splits = dict(recorded)
        # In a copy of the folder, accented letters of names may have another Unicode form.
        known = {_normalized(path): split for path, split in recorded.items()} | recorded
        for folder, paths in classes.items():
            splits |= _divide_class(folder, paths, shares, known)
        if len(splits) > len(recorded):
            _write(root, {**divisions, key: splits})
    return splits


def _divide_class(folder, paths, shares, known):
    recorded = {path: known.get(path) or known.get(_normalized(path)) for path in paths}
    splits = {path: split for path, split in recorded.items() if split}
    counts = collections.Counter(splits.values())
    quotas = {
        name: round(stop * len(paths)) - round(start * len(paths))
        for name, (start, stop) in shares.items()
    }
    hashes = {path: _hash(folder, path) for path in paths if path not in splits}
    for path in sorted(hashes, key=lambda path: (hashes[path], path)):
        wanted = next(name for name, (_, stop) in shares.items() if hashes[path] < stop)
        if not counts["train"]:
            wanted = "train"
        elif counts[wanted] >= quotas[wanted]:
            wanted = max(shares, key=lambda name: quotas[name] - counts[name])
        splits[path] = wanted
        counts[wanted] += 1
    return splits


def _hash(folder, path):
    """Hash the path of a file, relative to the folder of its class, to a number from 0 to 1."""
    name = _normalized(str(pathlib.PurePosixPath(path).relative_to(folder)))
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    # A float has 53 bits: with more bits, the result could be rounded up to 1.
    return int.from_bytes(digest[:8]) // 2**11 / 2**53


def _normalized(path):
    """Return a path in one Unicode form, because file systems use different forms."""
    return unicodedata.normalize("NFC", path)


def _warn_of_other_divisions(root, shares):
    """Log a warning if a division was recorded when the folder had other folders of splits."""
    if others := [f"({other})" for other in _read(root) if other != _describe(shares)]:
        log_once(
            logging.WARNING,
            f"{root}: {RECORD} records another division {' and '.join(others)}, from when the "
            "folder had other folders of splits. Runs made then used other splits than new runs",
        )


def _describe(shares):
    return ", ".join(f"{name} {stop - start:.0%}" for name, (start, stop) in shares.items())


def _read(root):
    """Return the recorded divisions: for each description of shares, the split of each path."""
    path = root / RECORD
    if not path.exists():
        return {}
    try:
        divisions = json.loads(path.read_text(encoding="utf-8"))["divisions"]
        return {
            key: {path: name for name, paths in splits.items() for path in paths}
            for key, splits in divisions.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{str(path)!r} must be the division of the folder that this package recorded; restore "
            f"the file, or delete it to divide the images again. Received: {error}"
        ) from error


def _write(root, divisions):
    record = {"what": _EXPLANATION, "divisions": {}}
    for key, splits in divisions.items():
        listed = collections.defaultdict(list)
        for path in sorted(splits):
            listed[splits[path]].append(path)
        record["divisions"][key] = listed
    try:
        with replacing(root / RECORD) as partial:
            partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        log_once(
            logging.WARNING,
            f"the division of {root} into splits cannot be recorded in the folder "
            f"({type(error.__cause__ or error).__name__}): images may change their split when "
            "images are added or deleted. Make the folder writable once, or divide the images "
            "yourself into train/, validation/ and test/",
        )
