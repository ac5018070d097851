"""Which subfolders of a folder of images are splits, and which are classes."""

import collections
import re

from keras_vit.data.sources.division import RECORD
from keras_vit.data.sources.listing import list_images

# Compared without case.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid", "dev"),
    "test": ("test", "tests", "testing"),
}


def find_layout(root):
    """Find the folders of the splits, or that the classes are on the first level.

    Args:
        root: `pathlib.Path` of the folder.

    Returns:
        `(given, left_out)`: a dictionary from names of splits to their folders, `{"train": root}`
        for classes on the first level; and a `collections.Counter` of the files that belong to no
        class, by reason.

    Raises:
        ValueError: if splits cannot be distinguished from classes.
    """
    given = find_splits(root)
    left_out = collections.Counter()
    if given:
        for name in sorted(set(_folders(root)) - {folder.name for folder in given.values()}):
            files, others = list_images(root / name)
            left_out[f"in {name}/, which is not a split"] = len(files) + others.total()
    for folder in {root, *given.values()}:
        files = (entry for entry in folder.iterdir() if not entry.is_dir())
        left_out["outside of a folder of a class"] += sum(file.name != RECORD for file in files)
        # It may be a class by mistake.
        left_out.update(f"hidden folder {name}/" for name in _folders(folder, is_hidden=True))
    given = given or {"train": root}
    _check_classes(root, given)
    return given, +left_out


def class_folders(folder):
    """Return the sorted names of the folders in a folder, which are the classes.

    Raises:
        ValueError: if there is none.
    """
    names = _folders(folder)
    if not names:
        raise ValueError(
            "A folder of images must have one folder for each class, as in "
            f"`{folder}/CLASS/picture.jpg`. Received: {str(folder)!r}, which has none"
        )
    return names


def _folders(folder, is_hidden=False):
    names = (entry.name for entry in folder.iterdir() if entry.is_dir())
    return tuple(sorted(name for name in names if name.startswith(".") == is_hidden))


def find_splits(root):
    """Return the folders that are named like splits, by split."""
    given = {}
    for name in _folders(root):
        split = _split_of(name)
        if split in given:
            raise ValueError(
                f"A folder of images must have one folder for the split `{split}`. "
                f"Received: {str(root)!r} with {given[split].name}/ and {name}/"
            )
        if split is not None:
            given[split] = root / name
    if given and "train" not in given:
        listed = ", ".join(f"{folder.name}/" for folder in given.values())
        raise ValueError(
            "A folder of images that has splits must have a folder `train`; a class must not have "
            f"the name of a split. Received: {str(root)!r} with {listed} and without train/"
        )
    return {split: given[split] for split in SPLIT_NAMES if split in given}


def _split_of(name):
    """Return the split that a folder is named after, or `None`."""
    names = SPLIT_NAMES.items()
    return next((split for split, known in names if name.casefold().strip() in known), None)


def _are_named_as_splits(names):
    """Whether all names contain the name of a split as a word, and of more than one split.

    Examples: `train_images`, `2024 test`, `Trainset`.
    """
    words = [re.findall(r"[^\W\d_]+", name) for name in names]
    found = [
        {_split_of(re.sub("(set|data)$", "", word, flags=re.I)) for word in parts} - {None}
        for parts in words
    ]
    return all(found) and len(set().union(*found)) > 1


def _has_files(folder):
    return any(path.is_file() and not path.name.startswith(".") for path in folder.iterdir())


def _check_classes(root, given):
    train = given["train"]
    if train != root and not _folders(train):
        raise ValueError(
            f"`{train.name}/` must have one folder for each class, as in `{train}/CLASS/a.jpg`; a "
            f"class must not have the name of a split. Received: {str(train)!r}, which has none"
        )
    if train == root and _are_named_as_splits(_folders(root)):
        raise ValueError(
            "Folders of splits must be named `train`, `validation` and `test`, with one folder for "
            f"each class in them. Received: {str(root)!r} with {', '.join(_folders(root))}, which "
            "would be classes"
        )
    below = [set(_folders(train / name)) for name in _folders(train)]
    inner = train / _folders(train)[0] if len(below) == 1 else None
    if inner and len(below[0]) > 1 and not _has_files(inner):
        raise ValueError(
            f"A folder of images must have at least two folders of classes; folder:{inner} has "
            f"{len(below[0])} folders. Received: {str(train)!r}, which has one"
        )
    for name in set(_folders(train)).union(*below):
        if _split_of(name) is not None:
            raise ValueError(
                "A class, and a folder in it, must not have the name of a split. "
                f"Received: a folder {name!r} in {str(train)!r}"
            )
    common = sorted(set.intersection(*below)) if len(below) > 1 else []
    # One common folder is usual, such as `images/` in Tiny ImageNet.
    if len(common) > 1:
        raise ValueError(
            "The folders of classes must not hold the same folders: splits are recognized by the "
            f"names {', '.join(names[0] for names in SPLIT_NAMES.values())}, and the folders in "
            f"them are the classes. Received: {', '.join(_folders(train))} in {str(train)!r}, each "
            f"of which holds {', '.join(common[:5])}"
        )
