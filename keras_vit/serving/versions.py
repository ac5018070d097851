"""The numbered versions of a model in a directory, where servers look for them."""

import contextlib
import pathlib
import shutil

from keras_vit.core.arguments import is_integer
from keras_vit.core.files import PARTIAL, exclusive_lock
from keras_vit.serving.formats import format_of

# TF Serving reads versions as 64-bit integers.
VERSIONS_END = 2**63


@contextlib.contextmanager
def new_version(directory, version="auto"):
    """Provide a temporary folder, and a function that turns a part of it into a new version.

    The folder is removed at the end. Other exports to the same directory wait meanwhile.

    Args:
        directory: path of the model's directory, which is created if it does not exist.
        version: a positive integer that is not taken; `"auto"` for one more than the last.

    Yields:
        `(folder, publish)`: the `pathlib.Path` of an empty directory, and a function of the path
        of a directory in it that moves this to its place and returns the new path.
    """
    directory = pathlib.Path(directory).expanduser().resolve()
    _check_version(version, taken_versions(directory))
    if (directory / "run.json").exists():
        raise ValueError(
            "`directory` must be one for exports, not that of a training run. "
            f"Received: directory={str(directory)!r}"
        )
    if is_version(directory):
        raise ValueError(
            "`directory` must be one for numbered versions, not one of them. "
            f"Received: directory={str(directory)!r}, which holds a model"
        )
    with contextlib.ExitStack() as stack:
        with _explaining_write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(exclusive_lock(directory))
        # Remains of exports that were killed.
        for partial in directory.glob(f".*{PARTIAL}"):
            shutil.rmtree(partial, ignore_errors=True)
        taken = taken_versions(directory)
        _check_version(version, taken)
        number = max(taken, default=0) + 1 if version == "auto" else version
        folder = directory / f".{number}{PARTIAL}"
        with _explaining_write_errors(directory):
            folder.mkdir()
        try:
            yield folder, lambda written: written.replace(directory / str(number))
        finally:
            # The directory is kept even if it is new: other exports may wait for it.
            shutil.rmtree(folder, ignore_errors=True)


def is_version(path):
    """Whether a path is the directory of one version of an export."""
    return format_of(path) is not None


def taken_versions(directory):
    """Return the sorted numbers of the versions in a directory, which need not exist."""
    return [number for number, _ in version_folders(directory)]


def version_folders(directory):
    """Return a sorted list of the numbers and paths of the versions in a directory."""
    entries = directory.iterdir() if directory.is_dir() else ()
    numbers = ((int(entry.name), entry) for entry in entries if entry.name.isdecimal())
    return sorted(pair for pair in numbers if pair[0] < VERSIONS_END)


def _check_version(version, taken):
    is_new = is_integer(version) and 0 < version < VERSIONS_END and version not in taken
    if version != "auto" and not is_new:
        raise ValueError(
            "`version` must be a positive integer that is not taken, or 'auto'. "
            f"Received: version={version!r}, taken: {taken}"
        )


@contextlib.contextmanager
def _explaining_write_errors(directory):
    try:
        yield
    except OSError as error:
        raise ValueError(
            "`directory` must be a directory that can be written. "
            f"Received: directory={str(directory)!r} ({error.strerror})"
        ) from error
