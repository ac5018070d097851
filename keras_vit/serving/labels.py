"""The names of an export's classes, in a file of one name a line."""

import collections
import pathlib

# In a version's directory, where a SavedModel has its assets.
FOLDER, NAME = "assets", "labels.txt"


def write_labels(folder, class_names):
    """Writes the file into a folder and returns its path."""
    path = pathlib.Path(folder) / NAME
    path.write_text("".join(f"{name}\n" for name in class_names), encoding="utf-8")
    return path


def labels_of(version):
    """The names of the classes of a version, `None` where it has no such file.

    Raises:
        ValueError: if a line is empty or there twice, or the file is not in UTF-8.
    """
    path = pathlib.Path(version) / FOLDER / NAME
    if not path.is_file():
        return None
    rule = f"{str(path)!r} must hold a different name on each line, in UTF-8"
    try:
        names = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{rule}. Received: {error}") from error
    wrong = [name for name, n in collections.Counter(names).items() if n > 1 or not name.strip()]
    if wrong or not names:
        raise ValueError(f"{rule}. Received: {len(names)} lines, {wrong[:1]} among them")
    return names
