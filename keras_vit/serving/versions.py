"""The numbered versions of a model in a directory, where servers look for them."""

import contextlib
import pathlib
import shutil

from keras_vit.core.arguments import is_integer
from keras_vit.core.files import PARTIAL, exclusive_lock

# In a version's directory, where it is no SavedModel.
FILES = ("model.onnx", "model.tflite", "model.xml")
MODEL_FILES = ("saved_model.pb", *FILES)
# TF Serving reads versions as 64-bit integers.
VERSIONS_END = 2**63


@contextlib.contextmanager
def new_version(directory, version="auto"):
    """Gives a folder beside the versions, and a function that makes a part of it a version.

    Where nothing was made a version, none is left. Other exports to the directory wait.

    Args:
        directory: path of the model's directory; made where it is not there.
        version: a positive integer that is not taken; `"auto"` for the one after the last.

    Yields:
        `(folder, publish)`: the `pathlib.Path` of an empty directory, and a function that moves a
        directory in it to its place and returns the new path.

    Raises:
        ValueError: if the version is taken, or the directory cannot be written or is that of a run
            or of a version.
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
    with _that_can_be_written(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(directory):
        # Of exports that were killed.
        for partial in directory.glob(f".*{PARTIAL}"):
            shutil.rmtree(partial, ignore_errors=True)
        taken = taken_versions(directory)
        _check_version(version, taken)
        number = max(taken, default=0) + 1 if version == "auto" else version
        folder = directory / f".{number}{PARTIAL}"
        with _that_can_be_written(directory):
            folder.mkdir()
        try:
            yield folder, lambda written: written.replace(directory / str(number))
        finally:
            # The directory stays, also a new one: others may wait for it.
            shutil.rmtree(folder, ignore_errors=True)


def is_version(path):
    """Whether a path is the directory of one version of an export."""
    return any((path / name).is_file() for name in MODEL_FILES)


def taken_versions(directory):
    """The numbers of the versions in a directory, sorted; of one that is not there none.

    Args:
        directory: `pathlib.Path` of a model's directory.

    Returns:
        A list of integers.
    """
    return [number for number, _ in version_folders(directory)]


def version_folders(directory):
    """The versions in a directory: a sorted list of pairs of their numbers and paths."""
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
def _that_can_be_written(directory):
    try:
        yield
    except OSError as error:
        raise ValueError(
            "`directory` must be a directory that can be written. "
            f"Received: directory={str(directory)!r} ({error.strerror})"
        ) from error
