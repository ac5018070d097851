"""Several labels per image: in CSV files, TFRecord files and TensorFlow Datasets."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.data import find_source, load
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.sources.folder import RECORD
from keras_vit.data.sources.splits import SPLITS
from tests.data.sources.test_records import PNG, as_example, write_raw
from tests.fixtures.images import write_folder

ALL = "+".join(SPLITS)


def write_csv(root, lines, name="labels.csv"):
    write_folder(root, ("a",), count=10, suffix=".png")
    (root / name).write_text("\n".join(lines), encoding="utf-8")
    return f"csv:{root / name}"


def labels_by_id(name, split=ALL, **options):
    source = find_source(name, split, **options)
    names = source.class_names
    return {
        source.find_id(number): [names[index] for index in np.flatnonzero(label)]
        for number, _, label in source.examples.as_numpy_iterator()
    }


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a/0.png,dog cat", "./a/1.png, cat ", "a/2.png,"], [["cat", "dog"], ["cat"], []]),
        (["\ufeffimage,labels", "a/0.png,b|a a", "", "a/1.png,b"], [["a a", "b"], ["b"]]),
        (['"a/0.png","b; a a"', "a/1.png,b;b"], [["a a", "b"], ["b"]]),
    ],
)
def test_lines_of_a_csv_file(lines, expected, tmp_path):
    found = labels_by_id(write_csv(tmp_path, lines))
    assert found == {f"a/{number}.png": labels for number, labels in enumerate(expected)}


LINES = [
    f"a/{n}.png,{' '.join(x for x in ('even', 'low') if x[0] == 'e' and n % 2 == 0)} low"
    for n in range(10)
]


def test_a_csv_file_is_divided_once_and_for_all(tmp_path):
    name = write_csv(tmp_path, LINES)
    before = {split: set(labels_by_id(name, split)) for split in SPLITS}
    assert [len(ids) for ids in before.values()] == [7, 1, 2]
    assert len(set().union(*before.values())) == 10
    write_folder(tmp_path / "more", ("b",), count=10, suffix=".png")
    (tmp_path / "labels.csv").write_text(
        "\n".join([f"more/b/{n}.png,low" for n in range(10)] + LINES[::-1])
    )
    for split, ids in before.items():
        assert ids <= set(labels_by_id(name, split))
    assert (tmp_path / RECORD).exists()
    (dataset,) = [load(name, "test", 8, 8)]
    ((images, labels),) = dataset.as_numpy_iterator()
    assert images.shape == (4, 8, 8, 3) and labels.shape == (4, 2) and labels.dtype == "float32"
    assert dataset.class_names == ("even", "low")


@pytest.mark.parametrize("header", ["image,label", "filename,tags"])
def test_a_first_line_that_names_no_file_is_a_header(tmp_path, header):
    name = write_csv(tmp_path, [header, *LINES])
    assert load(name, "train", 8, 8).class_names == ("even", "low")
    assert sum(len(labels_by_id(name, split)) for split in SPLITS) == 10


def test_a_directory_of_csv_files(tmp_path):
    write_csv(tmp_path, LINES[:8], "train.csv")
    (tmp_path / "test.csv").write_text("a/8.png,\na/9.png,low")
    name = f"csv:{tmp_path}"
    assert [len(labels_by_id(name, split)) for split in SPLITS] == [7, 1, 2]
    assert labels_by_id(name, "test") == {"a/8.png": [], "a/9.png": ["low"]}
    (tmp_path / "test.csv").write_text("a/8.png,high")
    with pytest.raises(ValueError, match="must be those of `train`, even, low. Received: high"):
        find_source(name, "train")


def test_classes_that_are_kept(tmp_path):
    name = write_csv(tmp_path, [*LINES[:5], "a/5.png,high"])
    found = labels_by_id(name, classes=("high", "even"))
    assert list(found.values()) == [["even"], [], ["even"], [], ["even"], ["high"]]
    with pytest.raises(ValueError, match=r"`classes` must be among even, high, low.*\('far',\)"):
        find_source(name, "train", classes=("far",))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "must have an image"),
        (["a/0.png,cat"], r"at least two classes. Received: \w+ .'cat'"),
        (["a/0.png,", "a/1.png,"], r"at least two classes. Received: \w+ [\[(]"),
        (["a/0.png,a b", "./a/0.png,a"], "one line for each image.*line 2 .*'./a/0.png,a'"),
        (["a/0.png;cat dog"], "line 1 .*'a/0.png;cat dog'"),
        (["a/0.png,cat,dog"], "line 1 .*'a/0.png,cat,dog'"),
        (["a/0.png,cat Cat"], "differ by more than case"),
    ],
)
def test_wrong_lines(lines, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        find_source(write_csv(tmp_path, lines), "train")


def test_a_missing_image_is_skipped_and_named(tmp_path):
    name = write_csv(tmp_path, [*LINES, "a/10.png,low"])
    dataset = load(name, ALL, 8, 4)
    assert sum(len(labels) for _, labels in dataset.as_numpy_iterator()) == 10
    assert list(dataset.info.skipped.reasons) == ["a/10.png"]
    assert "No such file" in dataset.info.skipped.reasons["a/10.png"]


LISTS = [[0, 2], [], [1], [2, 2, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("names", [("image", "label"), ("image/encoded", "image/class/label")])
def test_records_with_lists_of_labels(names, tmp_path):
    keys = [dict(zip(names, ([PNG], labels), strict=True)) for labels in LISTS]
    records = [as_example(**{key: value for key, value in row.items() if value}) for row in keys]
    write_raw(tmp_path / "a.tfrecord", records)
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    name = f"tfrecord-lists:{tmp_path}/*.tfrecord"
    dataset = load(name, ALL, 4, 4)
    ((_, labels),) = dataset.as_numpy_iterator()
    np.testing.assert_array_equal(labels, [np.isin(np.arange(3), row) for row in LISTS])
    (tmp_path / "labels.txt").write_text("a\nb\n")
    dataset = load(name, ALL, 4, 4)
    message = "from 0 to 1.*Received: a list with another of a.tfrecord#0"
    with pytest.raises(ValueError, match=message), explaining_errors(dataset):
        list(dataset)
    if names[0] == "image":
        dataset = load(f"tfrecord:{tmp_path}/*.tfrecord", ALL, 4, 4)
        message = "A label must be from 0 .*Received: label=-1 of"
        with pytest.raises(ValueError, match=message), explaining_errors(dataset):
            list(dataset)


@pytest.mark.slow
def test_tensorflow_datasets_with_labels(tmp_path):
    features = {
        "image": tfds.features.Image(shape=(None, None, 3)),
        "labels": tfds.features.Sequence(tfds.features.ClassLabel(names=["a", "b", "c"])),
    }

    def examples():
        for labels in LISTS:
            yield {"image": np.zeros((8, 8, 3), "uint8"), "labels": np.array(labels, "int64")}

    spec = {"image": tf.TensorSpec((8, 8, 3), tf.uint8), "labels": tf.TensorSpec((None,), tf.int64)}
    split = tf.data.Dataset.from_generator(examples, output_signature=spec)
    tfds.dataset_builders.store_as_tfds_dataset(
        name="several",
        version="1.0.0",
        features=tfds.features.FeaturesDict(features),
        split_datasets=dict.fromkeys(SPLITS, split),
        data_dir=tmp_path,
    )
    dataset = load("tfds:several", "train", 8, 4, data_dir=tmp_path)
    ((_, labels),) = dataset.as_numpy_iterator()
    expected = [np.isin(np.arange(3), row).tolist() for row in LISTS]
    assert sorted(labels.tolist()) == sorted(expected)
    assert dataset.class_names == ("a", "b", "c") and dataset.info.dataset.source.is_multi_label
