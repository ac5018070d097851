"""Image files in one folder a class."""

import pathlib

import numpy as np
import tensorflow as tf

from keras_vit.data.source import from_arrays, take_classes
from keras_vit.data.splits import find_parts, stratified_part

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
FOLDER_NAMES = {
    "train": ("train",),
    "validation": ("validation", "val", "valid"),
    "test": ("test",),
}


def folder(path, split, classes=None, shard=(0, 1)):
    """Image files in one folder a class, below `train/` and perhaps `validation/`, `test/`.

    Args:
        path: of the folder.
        split: as in `load`.
        classes: as in `load`.
        shard: `(index, count)`, the part of one worker among so many.

    Returns:
        A `Source`; an id is a path below the folder.

    Raises:
        ValueError: if the folder does not hold what it must.
    """
    root = pathlib.Path(path).expanduser()
    if not root.is_dir():
        raise ValueError(
            f"`folder:PATH` must name a folder of images. Received: {str(root)!r}, "
            f"which {'is not a folder' if root.exists() else 'does not exist'}"
        )
    given = _given_folders(root)
    names = _class_names(given["train"])
    if len(names) < 2:
        raise ValueError(
            "A folder of images must have at least two classes. "
            f"Received: {str(given['train'])!r}, whose only class is {names[0]!r}"
        )
    parts = find_parts(split, given)
    paths, labels = [], []
    for given_split in given:
        found = _list_images(given[given_split], names, required=given_split == "train")
        wanted = [ends for name, *ends in parts if name == given_split]
        taken = [stratified_part(found[1], *ends) for ends in wanted]
        part = np.sort(np.concatenate([*taken, np.array([], "int64")])).astype("int64")
        paths += [found[0][index] for index in part]
        labels.append(found[1][part])
    return _as_source(root, split, paths, np.concatenate(labels), names, classes, shard)


def _as_source(root, split, paths, labels, names, classes, shard):
    if classes is not None:
        keep, labels, names = take_classes(labels, names, classes)
        paths, labels = [path for path, kept in zip(paths, keep, strict=True) if kept], labels[keep]
    if not paths:
        raise ValueError(
            f"The split {split!r} of the folder {str(root)!r} must have an image. "
            "Received: too few images to take it from"
        )
    return from_arrays(
        np.array(paths),
        labels,
        names,
        find_id=lambda number: str(pathlib.Path(paths[number]).relative_to(root)),
        part=slice(shard[0], None, shard[1]),
        read=tf.io.read_file,
        path_of=lambda number: paths[number],
    )


def _given_folders(root):
    given = {}
    for split, names in FOLDER_NAMES.items():
        folders = [root / name for name in names if (root / name).is_dir()]
        if folders:
            given[split] = folders[0]
    # One level: the folder is all there is.
    return given if "train" in given else {"train": root}


def _class_names(folder):
    names = tuple(
        sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    )
    if not names:
        raise ValueError(
            "A folder of images must have one folder for each class, as in "
            f"`{folder}/CLASS/picture.jpg`. Received: {str(folder)!r}, which has none"
        )
    return names


def _is_image(path, folder):
    is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() in SUFFIXES and not is_hidden and path.is_file()


def _list_images(folder, class_names, required):
    unknown = sorted(set(_class_names(folder)) - set(class_names))
    if unknown:
        raise ValueError(
            f"The classes in {str(folder)!r} must be those of `train`. Received: {unknown}"
        )
    paths, labels = [], []
    for label, name in enumerate(class_names):
        paths_below = (folder / name).rglob("*")
        found = sorted(str(path) for path in paths_below if _is_image(path, folder))
        if required and not found:
            raise ValueError(
                f"Every class must have images ({', '.join(SUFFIXES)}). "
                f"Received: {str(folder / name)!r}, which has none"
            )
        paths += found
        labels += [label] * len(found)
    return paths, np.array(labels, "int32")
