"""ObjectNet, a test set of objects in unusual views, with labels of ImageNet.

Its own files lead from the folders of images to the classes of ImageNet:

    folder -> label of ObjectNet -> names in ImageNet -> lines of a list of names -> outputs

The order of the list of names is not that of the outputs; a fourth file has both.
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
# Folder -> label of ObjectNet.
LABELS = "folder_to_objectnet_label.json"
# Label of ObjectNet -> names in ImageNet, for the 113 classes that ImageNet has, too.
NAMES = "objectnet_to_imagenet_1k.json"
# One name in ImageNet per line.
LINES = "imagenet_to_label_2012_v2"
# Output, in the usual order of sorted synsets -> line, counted from 0.
OUTPUTS = "pytorch_to_imagenet_2012_id.json"
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
        ValueError: if the split is another one.

    Reference:
        Barbu et al., ObjectNet, NeurIPS 2019; https://objectnet.dev.
    """
    if split_names(split) != ("test",):
        raise ValueError(
            "`split` of `objectnet:DIR` must be test: ObjectNet is a test set, and its license "
            "forbids to train a model on it or to tune one to it (https://objectnet.dev). "
            f"Received: split={split!r}"
        )
    root = pathlib.Path(path).expanduser()
    classes = read_mappings(root / "mappings")
    folders = sorted(folder.name for folder in (root / "images").iterdir() if folder.is_dir())
    if missing := sorted(name for name in set(classes) - set(folders) if classes[name]):
        log_once(
            logging.WARNING,
            f"{root}: {len(missing)} classes that are evaluated have no folder "
            f"({name_some(missing)}): accuracies are not those of ObjectNet",
        )
    paths, labels, left_out = [], [], collections.Counter()
    for name in folders:
        found, others = list_images(root / "images" / name)
        left_out.update(others)
        if not classes.get(name):
            left_out["of classes that ImageNet does not have"] += len(found)
            continue
        paths += found
        labels += [np.isin(np.arange(NUM_CLASSES), classes[name])] * len(found)
    labels, names = np.array(labels, "float32"), imagenet_class_names(NUM_CLASSES)
    options = {"left_out": +left_out, "border": BORDER}
    return files_source(root, split, paths, labels, names, shard, **options)


def read_mappings(folder):
    """Read which classes of ImageNet each folder of images shows.

    Args:
        folder: `pathlib.Path` of the folder `mappings` of ObjectNet.

    Returns:
        A dictionary from names of folders to sorted tuples of outputs, from 0 to 999; the tuple of
        a class that ImageNet does not have is empty.

    Reference:
        `get_metadata` of `src/datasets/objectnet.py` in mlfoundations/wise-ft.
    """
    texts = {file: (folder / file).read_text("utf-8") for file in (LABELS, NAMES, LINES, OUTPUTS)}
    labels, names, lines_of = (json.loads(texts[file]) for file in (LABELS, NAMES, OUTPUTS))
    words = [name.strip() for name in texts[LINES].strip().split("\n")]
    outputs = {words[line]: int(output) for output, line in lines_of.items()}
    # Two classes are called "crane", and nothing shows which one is meant; none of ObjectNet's
    # classes is one of them.
    for word, count in collections.Counter(words).items():
        if count > 1:
            del outputs[word]
    return {
        folder_name: tuple(
            sorted(outputs[name] for name in names.get(label, "").split("; ") if label in names)
        )
        for folder_name, label in labels.items()
    }
