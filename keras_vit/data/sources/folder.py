"""Image files in one folder per class."""

import collections
import logging
import pathlib

import numpy as np
import tensorflow as tf

from keras_vit.core.class_names import check_class_names
from keras_vit.data.logging import log_once
from keras_vit.data.sources.base import from_arrays, take_classes
from keras_vit.data.sources.division import divide, warn_of_other_divisions
from keras_vit.data.sources.folder_layout import class_folders, find_layout
from keras_vit.data.sources.listing import describe_left_out, list_images
from keras_vit.data.sources.splits import SPLITS, describe_parts, find_parts, split_names


def folder(path, split, classes=None, shard=(0, 1)):
    """Find the image files of a split: one folder per class, perhaps below folders of splits.

    If a folder does not have all splits, its images are divided by their names
    (`keras_vit.data.sources.division`), and the division is recorded in the folder.

    Args:
        path: path of the folder.
        split: as in `load`.
        classes: as in `load`.
        shard: as in `load`.

    Returns:
        A `Source`; ids are paths relative to the folder.

    Raises:
        ValueError: if the folder does not have this layout.
    """
    root = pathlib.Path(path).expanduser()
    if not root.is_dir():
        raise ValueError(
            f"`folder:PATH` must name a folder of images. Received: {str(root)!r}, "
            f"which {'is not a folder' if root.exists() else 'does not exist'}"
        )
    given, left_out = find_layout(root)
    names = check_class_names(
        class_folders(given["train"]), f"The folders of classes in {str(given['train'])!r}"
    )
    warn_of_other_divisions(root, shares_of(given, "train"))
    if given["train"] != root and len(given) < len(SPLITS):
        folders = {name: f"{place.name}/" for name, place in given.items()}
        log_once(logging.INFO, f"{root}: {describe_parts(folders)}")
    names_of_split = split_names(split)
    paths, labels = [], []
    for given_split, given_folder in given.items():
        listed, ignored = _list_classes(given_folder, names, given_split == "train")
        left_out += ignored
        listed = _part_by_name(root, given, given_split, listed, names_of_split)
        for label, found in enumerate(listed):
            paths += found
            labels += [label] * len(found)
    options = {"has_no_splits": given == {"train": root}, "part_by_id": True}
    labels = np.array(labels, "int32")
    return as_source(
        root, split, paths, labels, names, classes, shard, left_out=left_out, **options
    )


def as_source(root, split, paths, labels, names, classes, shard, **options):
    """Return the image files of a split as a `Source`, as `folder` does."""
    if classes is not None:
        keep, labels, names = take_classes(labels, names, classes)
        paths, labels = [path for path, kept in zip(paths, keep, strict=True) if kept], labels[keep]
    if not paths:
        raise ValueError(
            f"The split {split!r} of the folder {str(root)!r} must have an image. "
            "Received: too few images to take it from; add images, or make the folders train, "
            "validation and test, each with the folders of the classes"
        )
    return from_arrays(
        np.array(paths),
        labels,
        names,
        find_id=lambda number: _id_of(paths[number], root),
        part=slice(shard[0], None, shard[1]),
        read=tf.io.read_file,
        path_of=lambda number: paths[number],
        **options,
    )


def _id_of(path, root):
    return pathlib.Path(path).relative_to(root).as_posix()


def _list_classes(folder, class_names, required):
    """Return the paths of the images of each class, and a count of the other files by reason."""
    unknown = sorted(set(class_folders(folder)) - set(class_names))
    if unknown:
        raise ValueError(
            f"The classes in {str(folder)!r} must be those of `train`. Received: {unknown}"
        )
    listed, left_out = [], collections.Counter()
    for name in class_names:
        below = folder / name
        found, ignored = list_images(below) if below.is_dir() else ([], collections.Counter())
        if required and not found:
            raise ValueError(
                "Every class must have images: add some to its folder, or remove it. "
                f"Received: {str(below)!r}, which has none. {describe_left_out(ignored)}".rstrip()
            )
        listed.append(found)
        left_out += ignored
    return listed, left_out


def _part_by_name(root, given, given_split, listed, wanted):
    """Return the paths of each class that belong to one of the wanted splits."""
    shares = shares_of(given, given_split)
    wanted = set(wanted) & set(shares)
    if not wanted:
        return [[] for _ in listed]
    if wanted == set(shares):
        return listed
    folder = given[given_split]
    classes = {
        _id_of(folder / name, root): [_id_of(path, root) for path in paths]
        for name, paths in zip(class_folders(folder), listed, strict=True)
    }
    division = divide(root, classes, shares)
    return [[path for path in paths if division[_id_of(path, root)] in wanted] for paths in listed]


def shares_of(given, given_split):
    """Return the fractions of a given split that belong to each split."""
    return {
        name: (start, stop)
        for name in SPLITS
        for part, start, stop in find_parts(name, given)
        if part == given_split
    }
