"""Several labels per image: in CSV files, TFRecord files and TensorFlow Datasets."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.data import find_source, load
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.sources.splits import SPLITS
from tests.data.sources.test_records import PNG, as_example, write_raw
from tests.data.sources.test_tfds import store
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


LINES = [f"a/{number}.png,{('even low', 'low')[number % 2]}" for number in range(10)]


def test_a_csv_file_is_divided_once_and_for_all(tmp_path):
    name = write_csv(tmp_path, LINES)
    before = {split: set(labels_by_id(name, split)) for split in SPLITS}
    assert [len(ids) for ids in before.values()] == [7, 1, 2]
    assert len(set().union(*before.values())) == 10
    write_folder(tmp_path / "more", ("b",), count=10, suffix=".png")
    more = [f"more/b/{n}.png,low" for n in range(10)]
    (tmp_path / "labels.csv").write_text("\n".join(more + LINES[::-1]))
    for split, ids in before.items():
        assert ids <= set(labels_by_id(name, split))
    dataset = load(name, "test", 8, 8)
    ((images, labels),) = dataset.as_numpy_iterator()
    assert images.shape == (4, 8, 8, 3) and labels.shape == (4, 2) and labels.dtype == "float32"
    assert dataset.class_names == ("even", "low")


def test_a_directory_of_csv_files(tmp_path):
    write_csv(tmp_path, LINES[:8], "train.csv")
    (tmp_path / "test.csv").write_text("a/8.png,\na/9.png,low")
    name = f"csv:{tmp_path}"
    assert [len(labels_by_id(name, split)) for split in SPLITS] == [7, 1, 2]
    assert labels_by_id(name, "test") == {"a/8.png": [], "a/9.png": ["low"]}
    (tmp_path / "test.csv").write_text("a/8.png,high")
    with pytest.raises(ValueError, match="must be those of `train`"):
        find_source(name, "train")


def test_classes_that_are_kept(tmp_path):
    name = write_csv(tmp_path, [*LINES[:5], "a/5.png,high"])
    found = labels_by_id(name, classes=("high", "even"))
    assert list(found.values()) == [["even"], [], ["even"], [], ["even"], ["high"]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "must have an image"),
        (["a/0.png,cat"], "at least two classes"),
        (["a/0.png,a b", "./a/0.png,a"], "one line for each image.*line 2"),
        (["a/0.png;cat dog"], "line 1"),
        (["a/0.png,cat,dog"], "line 1"),
        (["a/0.png,cat Cat"], "differ by more than case"),
    ],
)
def test_wrong_lines(lines, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        find_source(write_csv(tmp_path, lines), "train")


LISTS = [[0, 2], [], [1], [2, 2, 1]]
EXPECTED = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("names", [("image", "label"), ("image/encoded", "image/class/label")])
def test_records_with_lists_of_labels(names, tmp_path):
    image, label = names
    records = [as_example(**{image: [PNG], **({label: row} if row else {})}) for row in LISTS]
    write_raw(tmp_path / "a.tfrecord", records)
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    name = f"tfrecord-lists:{tmp_path}/*.tfrecord"
    ((_, labels),) = load(name, ALL, 4, 4).as_numpy_iterator()
    np.testing.assert_array_equal(labels, EXPECTED)
    (tmp_path / "labels.txt").write_text("a\nb\n")
    dataset = load(name, ALL, 4, 4)
    message = "from 0 to 1.*Received: a list with another label for a.tfrecord#0"
    with pytest.raises(ValueError, match=message), explaining_errors(dataset):
        list(dataset)


@pytest.mark.slow
def test_tensorflow_datasets_with_labels(tmp_path):
    labels = tfds.features.Sequence(tfds.features.ClassLabel(names=["a", "b", "c"]))
    image = np.zeros((8, 8, 3), "uint8")
    rows = [{"image": image, "labels": np.array(labels, "int64")} for labels in LISTS]
    spec = {"image": tf.TensorSpec((8, 8, 3), tf.uint8), "labels": tf.TensorSpec((None,), tf.int64)}
    split = tf.data.Dataset.from_generator(lambda: rows, output_signature=spec)
    store("several", dict.fromkeys(SPLITS, split), tmp_path, labels=labels)
    dataset = load("tfds:several", "train", 8, 4, data_dir=tmp_path)
    ((_, found),) = dataset.as_numpy_iterator()
    assert sorted(found.tolist()) == sorted(EXPECTED)
    assert dataset.class_names == ("a", "b", "c")
