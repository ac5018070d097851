"""Names of an export's classes, in a file with one name per line."""

import pathlib

# In a version's directory. SavedModels have their assets there.
FOLDER, NAME = "assets", "labels.txt"


def write_labels(folder, class_names):
    """Write the file to a folder and return its path."""
    path = pathlib.Path(folder) / NAME
    path.write_text("".join(f"{name}\n" for name in class_names), encoding="utf-8")
    return path


def labels_of(version):
    """Return the names of the classes of a version, `None` if it has no such file."""
    path = pathlib.Path(version) / FOLDER / NAME
    if not path.is_file():
        return None
    rule = f"{str(path)!r} must hold one class name per line, in UTF-8"
    try:
        names = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{rule}. Received: {error}") from error
    if not names or not all(map(str.strip, names)):
        raise ValueError(f"{rule}. Received: {names!r:.200}")
    return names
