"""Division of a folder's images into splits, recorded in the folder."""

import collections
import contextlib
import hashlib
import json
import logging
import pathlib
import unicodedata

from keras_vit.core.files import exclusive_lock, replacing
from keras_vit.data.logging import log_once

# Its name is hidden, so that it does not count as a class or an image.
RECORD = ".keras_vit_division.json"
_FORMAT = 1
_WHAT = (
    "Which images keras_vit trains, validates and tests on. Keep this file with the images: it "
    "lets every image keep its split when others are added or deleted."
)


def divide(root, classes, shares):
    """Divide the files of a folder into splits, such that no file ever changes its split.

    A hash of its name chooses the split of a file, unless that split already has its share of the
    class; then the split that lacks most gets it. The result is recorded in the folder: files added
    later are divided in the same way, and recorded files keep their split. Equal folders without a
    record are divided equally on every machine.

    Args:
        root: `pathlib.Path` of the folder.
        classes: dictionary from the path of each class's folder, relative to `root`, to the paths
            of its files, relative to `root` too; all in POSIX form.
        shares: dictionary from names of splits to `(start, stop)`, fractions of each class that
            follow one another from 0 to 1.

    Returns:
        A dictionary from paths to names of splits.

    Raises:
        ValueError: if the record is damaged.
    """
    with contextlib.ExitStack() as stack:
        # Not all file systems have locks.
        with contextlib.suppress(OSError):
            stack.enter_context(exclusive_lock(root))
        divisions = _read(root)
        key = _describe(shares)
        recorded = divisions.get(key, {})
        found = dict(recorded)
        # A copy of the folder may have letters with accents in another Unicode form.
        known = {_normalized(path): split for path, split in recorded.items()} | recorded
        for folder, paths in classes.items():
            found |= _divide_class(folder, paths, shares, known)
        if len(found) > len(recorded):
            _write(root, {**divisions, key: found})
    return found


def warn_of_other_divisions(root, shares):
    """Log a warning if a folder was divided when it had folders of other splits.

    Arguments as in `divide`; `shares` is for the folders of splits that exist now.
    """
    now = _describe(shares)
    others = [f"({other})" for other in _read(root) if other != now]
    if others:
        log_once(
            logging.WARNING,
            f"{root}: the folder was divided {' and '.join(others)} when it had other folders of "
            f"splits, as {RECORD} records. Runs made then have other splits than it has now",
        )


def _describe(shares):
    return ", ".join(f"{name} {stop - start:.0%}" for name, (start, stop) in shares.items())


def _divide_class(folder, paths, shares, known):
    recorded = {path: known.get(path) or known.get(_normalized(path)) for path in paths}
    splits = {path: split for path, split in recorded.items() if split}
    counts = collections.Counter(splits.values())
    quotas = {
        name: round(stop * len(paths)) - round(start * len(paths))
        for name, (start, stop) in shares.items()
    }
    places = {path: _place(folder, path) for path in paths if path not in splits}
    for path in sorted(places, key=lambda path: (places[path], path)):
        wanted = next(name for name, (_, stop) in shares.items() if places[path] < stop)
        if not counts["train"]:
            wanted = "train"
        elif counts[wanted] >= quotas[wanted]:
            wanted = max(shares, key=lambda name: quotas[name] - counts[name])
        splits[path] = wanted
        counts[wanted] += 1
    return splits


def _place(folder, path):
    """Return a number from 0 to 1, from the name of a file below the folder of its class."""
    name = _normalized(str(pathlib.PurePosixPath(path).relative_to(folder)))
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    # 53 bits, as many as a float has: the number stays below 1.
    return int.from_bytes(digest[:8]) // 2**11 / 2**53


def _normalized(path):
    """Return a path in one Unicode form, in which file systems differ."""
    return unicodedata.normalize("NFC", path)


def _read(root):
    """Return the recorded divisions: for each description of shares, splits by path."""
    path = root / RECORD
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != _FORMAT:
            raise ValueError(f"format {record['format']!r}")
        divisions = {}
        for key, splits in record["divisions"].items():
            pairs = [(path, name) for name, paths in splits.items() for path in paths]
            divisions[key] = dict(pairs)
            expected = {part.partition(" ")[0] for part in key.split(", ")}
            if not set(splits) <= expected or not all(isinstance(p, str) for p, _ in pairs):
                raise ValueError(f"splits {sorted(splits)}, or paths that are no strings")
            if len(divisions[key]) < len(pairs):
                raise ValueError("a file in two splits")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{str(path)!r} must be the division of the folder as this package recorded it; "
            "restore it, or delete it to divide the images anew. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
    return divisions


def _write(root, divisions):
    record = {"what": _WHAT, "format": _FORMAT, "divisions": {}}
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
            f"the division of {root} into splits cannot be recorded there "
            f"({type(error.__cause__ or error).__name__}): images may change their split when "
            "others are added or deleted. Make the folder writable once, or divide the images "
            "yourself into train/, validation/ and test/",
        )
