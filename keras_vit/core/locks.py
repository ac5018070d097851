"""Exclusive locks on directories."""

import contextlib
import pathlib

import filelock

LOCK_FILE = ".keras_vit.lock"


@contextlib.contextmanager
def exclusive_lock(directory, wait=True):
    """Hold an exclusive lock on a directory, in a file that is removed at the end.

    The operating system releases the lock of a process that is killed.

    Args:
        directory: path of an existing directory.
        wait: whether to wait while another process holds the lock.

    Raises:
        TimeoutError: if another process holds the lock, and `wait` is false.
        OSError: if the directory cannot be written.

    Example:
    >>> from keras_vit.core.locks import exclusive_lock
    >>> with exclusive_lock(tmp_path):
    ...     with exclusive_lock(tmp_path, wait=False):
    ...         pass
    Traceback (most recent call last):
    TimeoutError: ...
    """
    path = pathlib.Path(directory, LOCK_FILE)
    with filelock.FileLock(path).acquire(blocking=wait):
        try:
            yield
        finally:
            # A process that has just opened this file sees that it is gone, and tries again.
            # Windows removes no open file.
            with contextlib.suppress(OSError):
                path.unlink()
