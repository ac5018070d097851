"""The names of an export's classes, in a file of one name a line."""

import pathlib

# In a version's directory, where a SavedModel has its assets.
FOLDER, NAME = "assets", "labels.txt"


def write_labels(folder, class_names):
    """Writes the file into a folder and returns its path."""
    path = pathlib.Path(folder) / NAME
    path.write_text("".join(f"{name}\n" for name in class_names), encoding="utf-8")
    return path


def labels_of(version):
    """The names of the classes of a version, `None` where it has no such file."""
    path = pathlib.Path(version) / FOLDER / NAME
    return path.read_text(encoding="utf-8-sig").splitlines() if path.is_file() else None
