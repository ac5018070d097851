"""The images of ObjectNet whose classes ImageNet has."""

import collections
import logging
import pathlib

import numpy as np

from keras_vit.core.imagenet import imagenet_class_names
from keras_vit.core.text import name_some
from keras_vit.data.logging import log_once
from keras_vit.data.sources.folder import as_source
from keras_vit.data.sources.listing import list_images
from keras_vit.data.sources.objectnet.mappings import LABELS, NUM_CLASSES, read_mappings
from keras_vit.data.sources.splits import split_names

# A red line of one pixel marks the images, so that they can be found in other datasets. Two pixels
# are cut off by the code of the authors (README of abarbu/objectnet-template-pytorch: "crops out 2
# pixel red border") and by `src/datasets/objectnet.py` of mlfoundations/wise-ft.
BORDER = 2


def objectnet(path, split, shard=(0, 1)):
    """Find the images of ObjectNet whose classes ImageNet has, with their classes in ImageNet.

    Args:
        path: path of the unpacked folder `objectnet-1.0`, which has `images/` and `mappings/`.
        split: `"test"`; there is no other.
        shard: as in `load`.

    Returns:
        A `Source` with ImageNet's 1,000 classes; an image has one label or several. Ids are paths
        relative to the folder. Images of other classes are left out and counted.

    Raises:
        ValueError: if the split is another one, or the folder does not have this layout.

    Reference:
        Barbu et al., ObjectNet, NeurIPS 2019; https://objectnet.dev.
    """
    _check_split(split)
    root = pathlib.Path(path).expanduser()
    images, mappings = root / "images", root / "mappings"
    missing = [f"{folder.name}/" for folder in (images, mappings) if not folder.is_dir()]
    if missing:
        raise ValueError(
            "`objectnet:DIR` must name the unpacked folder `objectnet-1.0`, with `images/` and "
            f"`mappings/`. Received: {str(root)!r} without {' and '.join(missing)}"
        )
    classes = read_mappings(mappings)
    _check_folders(images, classes)
    paths, labels, left_out = [], [], collections.Counter()
    for name in sorted(classes):
        found, others = list_images(images / name) if (images / name).is_dir() else ([], {})
        left_out.update(others)
        if not classes[name]:
            left_out["of classes that ImageNet does not have"] += len(found)
            continue
        paths += found
        labels += [np.isin(np.arange(NUM_CLASSES), classes[name])] * len(found)
    return as_source(
        *(root, split, paths, np.array(labels, "float32"), imagenet_class_names(NUM_CLASSES)),
        classes=None,
        shard=shard,
        left_out=+left_out,
        border=BORDER,
    )


def _check_split(split):
    if split_names(split) != ("test",):
        raise ValueError(
            "`split` of `objectnet:DIR` must be test: ObjectNet is a test set, and its license "
            "forbids to train a model on it or to tune one to it (https://objectnet.dev). "
            f"Received: split={split!r}"
        )


def _check_folders(images, classes):
    """Refuse folders of unknown classes, and warn of classes without a folder."""
    folders = {entry.name for entry in images.iterdir() if entry.is_dir()}
    folders = {name for name in folders if not name.startswith(".")}
    if unknown := sorted(folders - set(classes)):
        raise ValueError(
            f"Each folder in `images/` of `objectnet:DIR` must be one of {LABELS}. "
            f"Received: {name_some(unknown)} in {str(images)!r}"
        )
    shown = [name for name in classes if classes[name]]
    if missing := sorted(set(shown) - folders):
        log_once(
            logging.WARNING,
            f"{images}: {len(missing)} of the {len(shown)} classes that are evaluated have no "
            f"folder ({name_some(missing)}): accuracies are not those of ObjectNet",
        )
