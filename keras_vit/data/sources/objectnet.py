"""ObjectNet: a test set of objects in unusual views, with labels of ImageNet.

Four files of ObjectNet map each folder of images to outputs of an ImageNet model:

    folder -> ObjectNet label -> ImageNet names -> line numbers in a list of names -> outputs
"""

import collections
import json
import logging
import pathlib

import numpy as np

from keras_vit.core.text import imagenet_class_names, name_some
from keras_vit.data.sources.folder import files_source, list_images
from keras_vit.data.sources.source import log_once
from keras_vit.data.sources.splits import split_names

NUM_CLASSES = 1000
# Folder -> ObjectNet label.
LABELS = "folder_to_objectnet_label.json"
# ObjectNet label -> ImageNet names, for the 113 ObjectNet classes that are also ImageNet classes.
NAMES = "objectnet_to_imagenet_1k.json"
# List of ImageNet names, one per line.
LINES = "imagenet_to_label_2012_v2"
# Output (in the usual order of sorted synsets) -> line number in the list, counted from 0.
OUTPUTS = "pytorch_to_imagenet_2012_id.json"
# Each image has a red border of one pixel, so that it is recognized if it gets into other datasets.
# The authors (README of abarbu/objectnet-template-pytorch: "crops out 2 pixel red border") and
# `src/datasets/objectnet.py` of mlfoundations/wise-ft cut off two pixels.
BORDER = 2


def objectnet(path, split, shard=(0, 1)):
    """Find the images of ObjectNet whose classes are ImageNet classes, with ImageNet's labels.

    Args:
        path: path of the unpacked folder `objectnet-1.0`, which has `images/` and `mappings/`.
        split: `"test"`, the only split.
        shard: as in `load`.

    Returns:
        A `Source` with ImageNet's 1,000 classes and one or more labels per image. Ids are paths
        relative to the folder. Images of other classes are left out and counted.

    Raises:
        ValueError: if the split is not `"test"`.

    Reference:
        Barbu et al., ObjectNet, NeurIPS 2019; https://objectnet.dev.
    """
    if split_names(split) != ("test",):
        raise ValueError(
            "`split` of `objectnet:DIR` must be test: ObjectNet is a test set, and its license "
            "forbids training or tuning models on its images (https://objectnet.dev). "
            f"Received: split={split!r}"
        )
    root = pathlib.Path(path).expanduser()
    classes = read_mappings(root / "mappings")
    folders = sorted(folder.name for folder in (root / "images").iterdir() if folder.is_dir())
    if missing := sorted(name for name in set(classes) - set(folders) if classes[name]):
        log_once(
            logging.WARNING,
            f"{root}: {len(missing)} classes that are evaluated have no folder "
            f"({name_some(missing)}): accuracies will differ from those on the whole ObjectNet",
        )
    paths, labels, left_out = [], [], collections.Counter()
    for name in folders:
        images, reasons = list_images(root / "images" / name)
        left_out.update(reasons)
        if not classes.get(name):
            left_out["of classes that ImageNet does not have"] += len(images)
            continue
        paths += images
        labels += [np.isin(np.arange(NUM_CLASSES), classes[name])] * len(images)
    labels, names = np.array(labels, "float32"), imagenet_class_names(NUM_CLASSES)
    options = {"left_out": +left_out, "border": BORDER}
    return files_source(root, split, paths, labels, names, shard, **options)


def read_mappings(folder):
    """Read the ImageNet classes of each folder of images.

    Args:
        folder: `pathlib.Path` of the folder `mappings` of ObjectNet.

    Returns:
        A dictionary from names of folders to sorted tuples of outputs, from 0 to 999. A tuple is
        empty if ImageNet does not have the class of the folder.

    Reference:
        `get_metadata` of `src/datasets/objectnet.py` in mlfoundations/wise-ft.
    """
    texts = {file: (folder / file).read_text("utf-8") for file in (LABELS, NAMES, LINES, OUTPUTS)}
    labels, names, lines_of = (json.loads(texts[file]) for file in (LABELS, NAMES, OUTPUTS))
    words = [name.strip() for name in texts[LINES].strip().split("\n")]
    outputs = {words[line]: int(output) for output, line in lines_of.items()}
    # Two classes of ImageNet have the ambiguous name "crane". ObjectNet has neither class.
    for word, count in collections.Counter(words).items():
        if count > 1:
            del outputs[word]
    return {
        folder_name: tuple(
            sorted(outputs[name] for name in names.get(label, "").split("; ") if label in names)
        )
        for folder_name, label in labels.items()
    }
