"""Atomic file replacement, directory locks, and comparison of settings."""

import contextlib
import json
import os
import pathlib
import uuid

# In the name of a file that is being written.
PARTIAL = ".partial"


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path next to a file, and rename it to the file at the end.

    Args:
        path: of the file.

    Raises:
        OSError: if it cannot be written; the old file is then still there, and nothing else.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory")
    # Another process may be writing the same file, in its own way.
    partial = path.with_name(f".{path.stem}{PARTIAL}.{uuid.uuid4().hex}{path.suffix}")
    try:
        yield partial
        with partial.open("rb") as file:
            # Or a machine that goes down could leave an empty file of the new name.
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(f"{str(path)!r} could not be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive_lock(directory):
    """Hold an exclusive lock on a directory.

    Args:
        directory: path of a directory that is there.
    """
    if os.name != "posix":
        # Windows has no such lock.
        yield
        return
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def differences(before, now, unordered=()):
    """List the settings that changed since something was begun.

    Args:
        before: dictionary, read from JSON.
        now: dictionary of what JSON can say.
        unordered: names of lists whose order is no change.

    Returns:
        A list of texts, one for each difference.

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
