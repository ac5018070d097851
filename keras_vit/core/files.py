"""Atomic file replacement, and comparison of settings."""

import contextlib
import csv
import json
import os
import pathlib
import uuid

# Part of the name of a file that is being written.
PARTIAL = ".partial"


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path next to a file, and rename it to the file at the end.

    Args:
        path: path of the file.

    Raises:
        OSError: if the file cannot be written; the old file then stays, and nothing else is left.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory")
    # Another process may be writing the same file.
    partial = path.with_name(f".{path.stem}{PARTIAL}.{uuid.uuid4().hex}{path.suffix}")
    try:
        yield partial
        with partial.open("rb") as file:
            # Otherwise a machine that goes down could leave an empty file with the new name.
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(f"{str(path)!r} could not be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_csv(path, rows):
    """Write dictionaries with the same keys as a CSV file, atomically; `None` is an empty cell."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def differences(before, now, unordered=()):
    """List the settings that changed since they were recorded.

    Args:
        before: dictionary, read from JSON.
        now: dictionary that JSON can store.
        unordered: names of lists whose order does not matter.

    Returns:
        A list of strings, one per difference.

    Example:
    >>> from keras_vit.core.files import differences
    >>> differences({"steps": 5, "seeds": [1]}, {"steps": 8, "seeds": (1,)})
    ['steps=8 instead of 5']
    """
    now = json.loads(json.dumps(now))
    return [
        f"{name}={now.get(name)!r} instead of {before.get(name)!r}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
        and not (name in unordered and _in_order(before.get(name)) == _in_order(now.get(name)))
    ]


def _in_order(value):
    return sorted(value, key=str) if isinstance(value, list) else value


def exists(path):
    """Return whether there is a file or a folder; a text may be too long for a path."""
    try:
        return pathlib.Path(path).exists()
    except OSError:
        return False


def absolute_path(path):
    """Return the absolute path of an existing file or folder, and any other name unchanged.

    A file keeps its name: the target of a link may have another suffix, as in the Hub's cache.
    """
    local = pathlib.Path(path).expanduser()
    if not exists(local):
        return str(path)
    return str(local.resolve() if local.is_dir() else local.parent.resolve() / local.name)
