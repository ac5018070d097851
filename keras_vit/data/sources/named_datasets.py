"""A table of single datasets, such as `cifar10` and the tasks of VTAB."""

import dataclasses
import itertools
import logging
from collections.abc import Callable

from keras_vit.data.images.preprocessing import AUGMENTATIONS, find_augmentation


@dataclasses.dataclass(frozen=True)
class DatasetRow:
    """A dataset of TensorFlow Datasets. Datasets that the paper uses are split as in the paper.

    Args:
        name: name in `load`.
        builder: name in TensorFlow Datasets, with a configuration if the dataset has several.
        splits: dictionary from our names of splits to splits of TensorFlow Datasets; the test split
            is not used for training or for choosing settings.
        num_classes: number of classes.
        label: name of the feature with the label, or a function from a dictionary of the features
            in `needs` (tensors) to the label.
        needs: features that the function `label` takes, as in `tfds.decode.PartialDecoding`.
        class_names: names of the classes, if TensorFlow Datasets does not have the names.
        is_multi_label: whether an image may have several labels; images without labels are left
            out.
        crop: whether the label stays valid after a crop.
        flip: whether the label stays valid after a flip left and right.
        scale: factor for pixel values: 255 for images of zeros and ones.
        mask: name of the feature with the mask of an image. Pixels have classes from 1 up. `None`
            if there are no masks.
    """

    name: str
    builder: str
    splits: dict[str, str]
    num_classes: int
    label: str | Callable = "label"
    needs: dict = dataclasses.field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    is_multi_label: bool = False
    crop: bool = True
    flip: bool = True
    scale: int = 1
    mask: str | None = None


# The labels of some VTAB tasks are computed from other features. These functions map the features
# of one example, as tensors, to a label, an int64 tensor, as in `data/clevr.py`, `data/dsprites.py`
# and `data/kitti.py` of google-research/task_adaptation. Each function imports TensorFlow, so that
# the table of datasets can be printed without importing TensorFlow.

CLEVR_COUNTS = tuple(f"{count} objects" for count in range(3, 11))
CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
CLEVR_DISTANCE_NAMES = tuple(
    f"{low} to {high}" for low, high in itertools.pairwise(CLEVR_DISTANCES)
)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)
KITTI_DISTANCE_NAMES = ("up to 8 m", "up to 20 m", "beyond 20 m", "no vehicle")

# Distance for an image without a vehicle, in meters. It is in the last class, which begins at 999.
_NO_VEHICLE = 1000.0
# The first types of objects in KITTI are car, van and truck.
_NUM_VEHICLE_TYPES = 3


def clevr_count(features):
    """Return the number of objects minus three, because each image has at least three objects."""
    import tensorflow as tf

    return tf.size(features["objects"]["size"], out_type=tf.int64) - 3


def clevr_distance(features):
    """Return the index of the range in `CLEVR_DISTANCES` that contains the closest object."""
    import tensorflow as tf

    return _find_range(tf.reduce_min(features["objects"]["pixel_coords"][:, 2]), CLEVR_DISTANCES)


def kitti_distance(features):
    """Return the index of the range in `KITTI_DISTANCES` that contains the closest vehicle."""
    import tensorflow as tf

    objects = features["objects"]
    depths = tf.boolean_mask(objects["location"][:, 2], objects["type"] < _NUM_VEHICLE_TYPES)
    return _find_range(tf.reduce_min(tf.concat([depths, [_NO_VEHICLE]], 0)), KITTI_DISTANCES)


def dsprites_location(features):
    """Return the horizontal position, whose 32 values are grouped into 16 classes."""
    return features["label_x_position"] // 2


def dsprites_orientation(features):
    """Return the orientation, whose 40 values are grouped into 16 classes."""
    return features["label_orientation"] * 2 // 5


def _find_range(value, bounds):
    """Return the index of the last bound below the value."""
    import tensorflow as tf

    return tf.reduce_sum(tf.cast(tf.constant(bounds, value.dtype) < value, tf.int64)) - 1


def _held_out(percent, test="test"):
    """Return splits in which the last `percent` of the training set are the validation split."""
    kept = 100 - percent
    return {"train": f"train[:{kept}%]", "validation": f"train[{kept}%:]", "test": test}


# To add a dataset of TensorFlow Datasets, add a row. The parts held out for validation are as in
# section B.1.1 of the paper (arXiv 2010.11929).
_PAPER = (
    DatasetRow("imagenet2012", "imagenet2012", _held_out(1, test="validation"), 1000),
    DatasetRow(
        "imagenet2012_real",
        "imagenet2012_real",
        {"test": "validation"},
        1000,
        label="real_label",
        is_multi_label=True,
    ),
    # TensorFlow Datasets cannot download this dataset: the user must prepare it. Splits are as in
    # `configs/vit_i21k.py` of big_vision.
    DatasetRow(
        "imagenet21k",
        "imagenet21k",
        {"train": "full[51200:]", "validation": "full[25600:51200]", "test": "full[:25600]"},
        21843,
    ),
    DatasetRow("cifar10", "cifar10", _held_out(2), 10),
    DatasetRow("cifar100", "cifar100", _held_out(2), 100),
    DatasetRow("oxford_iiit_pet", "oxford_iiit_pet", _held_out(10), 37),
    DatasetRow("oxford_flowers102", "oxford_flowers102", _held_out(10), 102),
    # The same images as in `oxford_iiit_pet`, with masks; this dataset is not in the paper.
    DatasetRow(
        "oxford_iiit_pet_masks",
        "oxford_iiit_pet",
        _held_out(10),
        3,
        label=lambda features: 0,
        class_names=("pet", "background", "border"),
        mask="segmentation_mask",
    ),
)


def _vtab(name, builder, validation, test, num_classes, **options):
    """Return a task of VTAB-1k, which has 800 training and 200 validation examples."""
    splits = {"train": "train[:800]", "validation": validation, "test": test}
    return DatasetRow(f"vtab/{name}", builder, splits, num_classes, **options)


def _structured(name, data, num_classes, **options):
    """Return a task whose labels (position, direction or number) crops and flips would change."""
    return _vtab(name, *data, num_classes, crop=False, flip=False, **options)


# Validation examples are as in google-research/task_adaptation. If a dataset has no validation set,
# they are taken from the training set.
VTAB_NATURAL = (
    _vtab("caltech101", "caltech101", "train[2753:2953]", "test", 102),
    _vtab("cifar100", "cifar100", "train[45000:45200]", "test", 100),
    _vtab("dtd", "dtd", "validation[:200]", "test", 47),
    _vtab("oxford_flowers102", "oxford_flowers102", "validation[:200]", "test", 102),
    _vtab("oxford_iiit_pet", "oxford_iiit_pet", "train[2944:3144]", "test", 37),
    _vtab("sun397", "sun397", "validation[:200]", "test", 397),
    _vtab("svhn", "svhn_cropped", "train[65931:66131]", "test", 10, flip=False),
)
VTAB_SPECIALIZED = (
    _vtab("patch_camelyon", "patch_camelyon", "validation[:200]", "test", 2),
    _vtab("eurosat", "eurosat/rgb", "train[16200:16400]", "train[21600:]", 10),
    _vtab("resisc45", "resisc45", "train[18900:19100]", "train[25200:]", 45),
    _vtab(
        "diabetic_retinopathy",
        "diabetic_retinopathy_detection/btgraham-300",
        "validation[:200]",
        "test",
        5,
    ),
)
# Datasets with two tasks: name in TensorFlow Datasets, validation examples, and test examples.
_CLEVR = ("clevr", "train[63000:63200]", "validation")
_DSPRITES = ("dsprites", "train[589824:590024]", "train[663552:]")
_SMALLNORB = ("smallnorb", "test[:200]", "test[12150:]")
VTAB_STRUCTURED = (
    _structured(
        "clevr_count",
        _CLEVR,
        8,
        label=clevr_count,
        needs={"objects": {"size"}},
        class_names=CLEVR_COUNTS,
    ),
    _structured(
        "clevr_distance",
        _CLEVR,
        6,
        label=clevr_distance,
        needs={"objects": {"pixel_coords"}},
        class_names=CLEVR_DISTANCE_NAMES,
    ),
    _structured("dmlab", ("dmlab", "validation[:200]", "test"), 6),
    _structured(
        "dsprites_location",
        _DSPRITES,
        16,
        label=dsprites_location,
        needs={"label_x_position": True},
        class_names=tuple(f"position {index}" for index in range(16)),
        scale=255,
    ),
    _structured(
        "dsprites_orientation",
        _DSPRITES,
        16,
        label=dsprites_orientation,
        needs={"label_orientation": True},
        class_names=tuple(f"orientation {index}" for index in range(16)),
        scale=255,
    ),
    _structured(
        "kitti_distance",
        ("kitti", "validation[:200]", "test"),
        4,
        label=kitti_distance,
        needs={"objects": {"type", "location"}},
        class_names=KITTI_DISTANCE_NAMES,
    ),
    _structured("smallnorb_azimuth", _SMALLNORB, 18, label="label_azimuth"),
    _structured("smallnorb_elevation", _SMALLNORB, 9, label="label_elevation"),
)
VTAB = VTAB_NATURAL + VTAB_SPECIALIZED + VTAB_STRUCTURED


def changes_that_keep_labels(name, min_crop_area, flip, random_crop_from=None):
    """Return options of `load` for crops and flips, without those that would make labels wrong.

    Arguments are as in `load`. Options that are left out are logged.
    """
    options = {"min_crop_area": min_crop_area, "random_crop_from": random_crop_from, "flip": flip}
    row = DATASETS.get(name)
    if row is None:
        return options
    kept = {
        "min_crop_area": min_crop_area if row.crop else None,
        "random_crop_from": random_crop_from if row.crop else None,
        "flip": flip if row.flip else False,
    }
    left_out = [f"{key}={value!r}" for key, value in options.items() if value != kept[key]]
    if left_out:
        logging.getLogger("keras_vit").info(
            "%s: not used, because labels would change: %s", name, ", ".join(left_out)
        )
    return kept


def check_augmentation(name, augmentation):
    """Raise `ValueError` for an augmentation that would make the labels of a dataset wrong.

    RandAugment shifts and shears images, and Random Erasing and CutMix hide parts of images. MixUp
    blends whole images and their labels, so it is valid for any dataset. Arguments are as in
    `load`.
    """
    row = DATASETS.get(name)
    if row is None or row.crop or not _moves_or_hides_parts(find_augmentation(augmentation)):
        return
    allowed = [key for key, value in AUGMENTATIONS.items() if not _moves_or_hides_parts(value)]
    raise ValueError(
        f"`augmentation` must be one of {', '.join(allowed)} for {name}, whose labels depend on "
        f"positions, directions or numbers. Received: augmentation={augmentation!r}"
    )


def _moves_or_hides_parts(augmentation):
    return bool(augmentation.layers or augmentation.erasing or augmentation.cutmix)


DATASETS = {dataset.name: dataset for dataset in _PAPER + VTAB}
