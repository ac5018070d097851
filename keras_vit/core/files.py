"""Files: atomic writing, locks, CSV, and archives whose size is checked before they are read."""

import contextlib
import csv
import os
import pathlib
import re
import uuid
import zipfile

import filelock
import numpy as np

# Names of files that are being written contain this.
PARTIAL = ".partial"
LOCK_FILE = ".keras_vit.lock"
# An archive is refused if it expands to more than `MAX_BYTES` and to more than `MAX_RATIO` times
# its size. Weights hardly compress, so no archive of weights does.
MAX_BYTES, MAX_RATIO = 64 * 2**20, 20
# False for text that is too long for a path, for which `pathlib.Path.exists` raises an error.
exists = os.path.exists


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path to write to; at the end of the `with`, it replaces the file.

    Args:
        path: path of the file.

    Raises:
        OSError: if the file cannot be written. An existing file then stays unchanged.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        # Renaming would fail too late: the caller may have replaced other files by then.
        raise IsADirectoryError(f"{str(path)!r} is a directory")
    # The name is random, as another process may be writing the same file.
    partial = path.with_name(f".{path.stem}{PARTIAL}.{uuid.uuid4().hex}{path.suffix}")
    try:
        yield partial
        with partial.open("rb") as file:
            # Otherwise a crash of the machine could leave an empty file under the new name.
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(f"{str(path)!r} could not be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(path, text):
    """Write a text file atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def exclusive_lock(directory, wait=True):
    """Hold an exclusive lock on a directory by a file in it, which is removed at the end.

    If the process is killed, the operating system releases the lock.

    Args:
        directory: path of an existing directory.
        wait: whether to wait while another process holds the lock.

    Raises:
        TimeoutError: if another process holds the lock, and `wait` is false.
        OSError: if the directory cannot be written.

    Example:
    >>> from keras_vit.core.files import exclusive_lock
    >>> with exclusive_lock(tmp_path):
    ...     with exclusive_lock(tmp_path, wait=False):
    ...         pass
    Traceback (most recent call last):
    filelock...
    """
    path = pathlib.Path(directory, LOCK_FILE)
    with filelock.FileLock(path, blocking=wait):
        try:
            yield
        finally:
            # A process that waits for this lock notices the removal, and makes a new file.
            # Windows refuses to remove a file that another process has open.
            with contextlib.suppress(OSError):
                path.unlink()


def check_zip(path):
    """Raise `ValueError` if a zip archive would expand to many times its size.

    Reading an archive of a few megabytes could fill the memory. This check expands nothing.
    """
    with zipfile.ZipFile(path) as archive:
        _check_expansion(path, (member.file_size for member in archive.infolist()))


def read_npz(path):
    """Return the arrays of an `.npz` file by name; raise the errors of `check_zip` and NumPy."""
    check_zip(path)
    # Opened here, because `np.load(path)` would leave a damaged file open.
    with pathlib.Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def hdf5_arrays(path, file):
    """Return the arrays of an HDF5 file by name.

    Raise `ValueError` if the arrays would take many times the size of the file, or if one is
    stored in another file, which could be any file on the machine.

    Args:
        path: path of the file, or of the archive that contains it.
        file: the open `h5py.File`.
    """
    import h5py

    arrays = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item

    file.visititems(visit)
    for name, array in arrays.items():
        if array.external or array.is_virtual:
            raise ValueError(f"all its arrays must be in this file, but {name!r} is in another")
    _check_expansion(path, (array.size * array.dtype.itemsize for array in arrays.values()))
    return arrays


def _check_expansion(path, sizes):
    size, file_size = sum(sizes), pathlib.Path(path).stat().st_size
    if size > max(MAX_BYTES, MAX_RATIO * file_size):
        raise ValueError(
            f"it would take {size:,} bytes of memory, and may take at most {MAX_RATIO} times the "
            f"size of the file, {file_size:,}"
        )


def write_csv(path, rows):
    """Write dictionaries with equal keys to a CSV file, atomically; `None` is an empty cell."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        # Rows end with "\r\n", for which the writer quotes a "\r" in a cell. Unquoted, the "\r"
        # would end the row.
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({name: csv_text(cell) for name, cell in row.items()} for row in rows)


def read_csv(path):
    """Return the dictionaries that `write_csv` wrote, as strings; `[]` if there is no file."""
    path = pathlib.Path(path)
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: text and from_csv(text) for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def absolute_path(path):
    """Return the absolute path of an existing file or folder, and any other name unchanged.

    A link to a file is not resolved, as the file may have another suffix. In the cache of the
    Hugging Face Hub, it does.
    """
    local = pathlib.Path(path).expanduser()
    if not exists(local):
        return str(path)
    return str(local.resolve() if local.is_dir() else local.parent.resolve() / local.name)


# Text that a spreadsheet would run as a formula, with or without apostrophes from `csv_text`. A
# number with a sign does not match.
_FORMULA = re.compile(r"'*(?![+-][\d.]+(e[+-]?\d+)?$)[=+\-@\t\r]", re.IGNORECASE)


def csv_text(value):
    """Return a value, with an apostrophe before text that a spreadsheet would run as a formula.

    Reference:
        OWASP, "CSV Injection".

    Example:
    >>> from keras_vit.core.files import csv_text
    >>> csv_text("=1+1"), csv_text("cat"), csv_text(-0.5)
    ("'=1+1", 'cat', -0.5)
    """
    is_formula = isinstance(value, str) and _FORMULA.match(value)
    return f"'{value}" if is_formula else value


def from_csv(text):
    """Return text without the apostrophe that `csv_text` added.

    Example:
    >>> from keras_vit.core.files import csv_text, from_csv
    >>> from_csv(csv_text("=1+1"))
    '=1+1'
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text
