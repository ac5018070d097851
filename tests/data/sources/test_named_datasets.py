"""The table of the paper's datasets, against TensorFlow Datasets, without downloading."""

import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.data import DATASETS
from keras_vit.data.sources import named_datasets
from keras_vit.data.sources.named_datasets import (
    VTAB,
    VTAB_NATURAL,
    VTAB_SPECIALIZED,
    VTAB_STRUCTURED,
)

# Section 4.1 and table 5 of the VTAB paper (arXiv 1910.04867), and the datasets' own pages.
SIZES = {
    "imagenet2012": {"train": 1_281_167, "validation": 50_000},
    "imagenet2012_real": {"validation": 50_000},
    "imagenet21k": {"full": 13_153_500},
    "cifar10": {"train": 50_000, "test": 10_000},
    "cifar100": {"train": 50_000, "test": 10_000},
    "oxford_iiit_pet": {"train": 3_680, "test": 3_669},
    "oxford_flowers102": {"train": 1_020, "validation": 1_020, "test": 6_149},
    "caltech101": {"train": 3_059, "test": 6_085},
    "dtd": {"train": 1_880, "validation": 1_880, "test": 1_880},
    "sun397": {"train": 76_128, "validation": 10_875, "test": 21_750},
    "svhn_cropped": {"train": 73_257, "test": 26_032},
    "patch_camelyon": {"train": 262_144, "validation": 32_768, "test": 32_768},
    "eurosat/rgb": {"train": 27_000},
    "resisc45": {"train": 31_500},
    "diabetic_retinopathy_detection/btgraham-300": {
        "train": 35_126,
        "validation": 10_906,
        "test": 42_670,
    },
    "clevr": {"train": 70_000, "validation": 15_000, "test": 15_000},
    "dmlab": {"train": 65_550, "validation": 22_628, "test": 22_735},
    "dsprites": {"train": 737_280},
    "kitti": {"train": 6_347, "validation": 423, "test": 711},
    "smallnorb": {"train": 24_300, "test": 24_300},
}
# How many examples VTAB tests on, where they are not those of the split `test`: table 2 of its
# paper's appendix.
VTAB_TEST = {
    "vtab/eurosat": 5_400,
    "vtab/resisc45": 6_300,
    "vtab/dsprites_location": 73_728,
    "vtab/dsprites_orientation": 73_728,
    "vtab/smallnorb_azimuth": 12_150,
    "vtab/smallnorb_elevation": 12_150,
}
ROWS = list(DATASETS.values())
IN_TFDS = [row for row in ROWS if row.builder != "imagenet21k"]


def parts_of(row, expression):
    """The parts of splits that an expression means, by TensorFlow Datasets' own arithmetic."""
    infos = {
        name: tfds.core.SplitInfo(name=name, shard_lengths=[size], num_bytes=0)
        for name, size in SIZES[row.builder].items()
    }
    parts = tfds.core.ReadInstruction.from_spec(expression).to_absolute(infos)
    # An end that is that of the split can be missing.
    return [
        (part.splitname, part.from_ or 0, part.to or infos[part.splitname].num_examples)
        for part in parts
    ]


def size_of(row, split):
    return sum(last - first for _, first, last in parts_of(row, row.splits[split]))


@pytest.mark.parametrize("row", IN_TFDS, ids=lambda row: row.name)
def test_builder_and_classes_agree(row, tmp_path):
    os.environ.setdefault("NO_GCE_CHECK", "true")
    features = tfds.builder(row.builder, data_dir=tmp_path).info.features
    assert "image" in features
    if callable(row.label):
        assert len(row.class_names) == row.num_classes
        decoding = tfds.decode.PartialDecoding({"image": True, **row.needs})
        assert "image" in decoding.extract_features(features)
    else:
        label = features[row.label]
        label = getattr(label, "feature", label)
        assert label.num_classes == row.num_classes
        assert row.is_multi_label == isinstance(features[row.label], tfds.features.Sequence)


@pytest.mark.parametrize("row", VTAB, ids=lambda row: row.name)
def test_vtab_is_800_200_and_the_test_set(row):
    assert size_of(row, "train") == 800
    assert size_of(row, "validation") == 200
    whole = SIZES[row.builder].get("test")
    assert size_of(row, "test") == VTAB_TEST.get(row.name, whole)


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("train[90%:]", ("caltech101", "cifar100", "svhn", "clevr_count", "clevr_distance")),
        ("train[80%:]", ("oxford_iiit_pet",)),
        ("train[60%:80%]", ("eurosat", "resisc45")),
        ("train[80%:90%]", ("dsprites_location", "dsprites_orientation")),
        ("test[:50%]", ("smallnorb_azimuth", "smallnorb_elevation")),
    ],
)
def test_vtab_chooses_on_the_first_of_task_adaptations_validation_set(part, names):
    for name in names:
        row = DATASETS[f"vtab/{name}"]
        ((split, first, last),) = parts_of(row, part)
        ((our_split, our_first, our_last),) = parts_of(row, row.splits["validation"])
        assert (our_split, our_first) == (split, first), name
        assert our_last <= last, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_splits_do_not_overlap(row):
    intervals = [part for split in row.splits.values() for part in parts_of(row, split)]
    for index, (name, first, last) in enumerate(intervals):
        for other, other_first, other_last in intervals[:index]:
            assert name != other or last <= other_first or other_last <= first


@pytest.mark.parametrize(
    ("name", "train", "validation"),
    [
        ("imagenet2012", 1_268_355, 12_812),
        ("cifar10", 49_000, 1_000),
        ("cifar100", 49_000, 1_000),
        ("oxford_iiit_pet", 3_312, 368),
        ("oxford_flowers102", 918, 102),
    ],
)
def test_the_papers_held_out_parts(name, train, validation):
    row = DATASETS[name]
    assert (size_of(row, "train"), size_of(row, "validation")) == (train, validation)


def test_vtab_has_its_groups():
    assert [len(group) for group in (VTAB_NATURAL, VTAB_SPECIALIZED, VTAB_STRUCTURED)] == [7, 4, 8]
    assert not any(row.crop or row.flip for row in VTAB_STRUCTURED)


@pytest.mark.parametrize("distance", [0.1, 7.9, 8.0, 8.4, 9.2, 9.5, 9.7, 10.0, 12.3])
def test_clevr_distance(distance):
    coordinates = tf.constant([[1.0, 1.0, 50.0], [1.0, 1.0, distance]])
    label = named_datasets.clevr_distance({"objects": {"pixel_coords": coordinates}})
    # As in `data/clevr.py` of task_adaptation.
    assert label == np.max(
        np.where(np.array(named_datasets.CLEVR_DISTANCES) - np.float32(distance) < 0)
    )


def test_clevr_count_starts_at_3():
    for count in range(3, 11):
        assert (
            named_datasets.clevr_count({"objects": {"size": tf.zeros(count, tf.int64)}})
            == count - 3
        )


@pytest.mark.parametrize(
    ("types", "depths", "label"),
    [
        ([], [], 3),
        ([3, 7], [1.0, 2.0], 3),
        ([0, 7], [7.9, 2.0], 0),
        ([0, 1], [30.0, 8.1], 1),
        ([2], [25.0], 2),
        ([2, 3], [20.0, 1.0], 1),
        ([1], [-3.0], 0),
    ],
)
def test_kitti_distance(types, depths, label):
    location = np.zeros((len(types), 3), "float32")
    location[:, 2] = depths
    objects = {"type": tf.constant(types, tf.int64), "location": tf.constant(location)}
    assert named_datasets.kitti_distance({"objects": objects}) == label


def test_dsprites_labels_are_task_adaptations():
    for values, feature, label in (
        (32, "label_x_position", named_datasets.dsprites_location),
        (40, "label_orientation", named_datasets.dsprites_orientation),
    ):
        theirs = np.floor(np.arange(values, dtype="float32") / (values / 16)).astype(int)
        ours = [int(label({feature: tf.constant(value, tf.int64)})) for value in range(values)]
        np.testing.assert_array_equal(ours, theirs)
