"""Folders of images, digits and their splits."""

import numpy as np
import pytest

from keras_vit.data import load
from keras_vit.data.datasets import find_source
from keras_vit.data.splits import SPLITS, find_parts, stratified_part
from tests.images import write_folder


def all_labels(dataset):
    return np.concatenate([labels for _, labels in dataset.as_numpy_iterator()])


def all_images(dataset):
    return np.concatenate([images for images, _ in dataset.as_numpy_iterator()])


@pytest.mark.parametrize(
    "given", [["train"], ["train", "test"], ["train", "validation"], list(SPLITS)]
)
def test_splits_do_not_overlap(given):
    parts = [part for split in SPLITS for part in find_parts(split, given)]
    for index, (source, start, stop) in enumerate(parts):
        assert source in given
        assert start < stop
        for other, other_start, other_stop in parts[:index]:
            assert source != other or start >= other_stop or stop <= other_start


def test_parts_cover_every_example_of_each_class_once():
    labels = np.repeat([0, 1, 2], [10, 1, 37])
    parts = [stratified_part(labels, *ends) for ends in [(0, 0.7), (0.7, 0.8), (0.8, 1)]]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(48))
    np.testing.assert_array_equal(np.bincount(labels[parts[0]]), [7, 1, 26])


def test_digits():
    splits = {split: load("digits", split, (8, 8), 100) for split in SPLITS}
    assert sum(dataset.num_examples for dataset in splits.values()) == 1797
    for dataset in splits.values():
        images = all_images(dataset)
        assert images.shape == (dataset.num_examples, 8, 8, 3)
        assert images.min() == -1
        assert images.max() == 1
        assert set(all_labels(dataset)) == set(range(10))
        assert dataset.class_names == tuple("0123456789")
    everything = np.concatenate([all_images(dataset) for dataset in splits.values()])
    assert len(np.unique(everything, axis=0)) == 1797


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    expected = np.round(load_digits().images * (255 / 16))
    ours = all_images(load("digits", "train", (8, 8), 100))[..., 0] * 127.5 + 127.5
    known = {tuple(image.ravel()) for image in expected}
    assert all(tuple(np.round(image).ravel()) in known for image in ours)


def test_classes():
    whole = load("digits", "test", (8, 8), 64)
    some = load("digits", "test", (8, 8), 64, classes=("7", "2"))
    labels = all_labels(whole)
    assert some.class_names == ("2", "7")
    assert some.num_examples == np.isin(labels, [2, 7]).sum()
    np.testing.assert_array_equal(all_labels(some), (labels[np.isin(labels, [2, 7])] == 7))


def test_folder_of_one_level(tmp_path):
    write_folder(tmp_path, ("cat", "dog"), count=10, suffix=".webp")
    splits = [load(f"folder:{tmp_path}", split, (8, 8), 4) for split in SPLITS]
    assert [dataset.num_examples for dataset in splits] == [14, 2, 4]
    assert splits[0].class_names == ("cat", "dog")
    together = find_source(f"folder:{tmp_path}", "train+validation+test")
    ids = [together.find_id(number) for number in together.numbers]
    paths = tmp_path.rglob("*.webp")
    assert sorted(ids) == sorted(str(path.relative_to(tmp_path)) for path in paths)
    for dataset in splits:
        images, labels = all_images(dataset), all_labels(dataset)
        # Cats are red and dogs are green.
        np.testing.assert_array_equal(images.mean(axis=(1, 2)).argmax(axis=-1), labels)


def test_folder_with_splits(tmp_path):
    for split, count in (("train", 10), ("val", 2), ("test", 3)):
        write_folder(tmp_path / split, count=count)
    sizes = [load(f"folder:{tmp_path}", split, (8, 8), 4).num_examples for split in SPLITS]
    assert sizes == [20, 4, 6]


def test_folder_with_train_and_test(tmp_path):
    for split, count in (("train", 10), ("test", 3)):
        write_folder(tmp_path / split, count=count)
    sizes = [load(f"folder:{tmp_path}", split, (8, 8), 4).num_examples for split in SPLITS]
    assert sizes == [18, 2, 6]


def test_what_is_no_image_file_is_left_out(tmp_path):
    write_folder(tmp_path, count=10)
    (tmp_path / "cat" / "._0.jpg").write_text("hidden")
    (tmp_path / "cat" / ".thumbnails").mkdir()
    (tmp_path / "cat" / ".thumbnails" / "0.jpg").write_text("hidden")
    (tmp_path / "cat" / ".thumbnails" / "large").mkdir()
    (tmp_path / "cat" / ".thumbnails" / "large" / "0.jpg").write_text("hidden")
    (tmp_path / "cat" / "folder.jpg").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("text")
    assert load(f"folder:{tmp_path}", "train", 8, 4).num_examples == 14


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda root: None, "one folder for each class.*which has none"),
        (lambda root: (root / "picture.jpg").write_text(""), "one folder for each class"),
        (
            lambda root: (write_folder(root), (root / "bird").mkdir()),
            "Every class must have images .*bird.*none",
        ),
        (
            lambda root: (
                write_folder(root / "train"),
                write_folder(root / "test", classes=("cat", "bird")),
            ),
            r"must be those of `train`. Received: \['bird'\]",
        ),
        (lambda root: write_folder(root, classes=("all",)), "at least two classes.*'all'"),
        (lambda root: root.rmdir(), "`folder:PATH` must name a folder .*does not exist"),
    ],
)
def test_wrong_folder(prepare, message, tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    prepare(root)
    with pytest.raises(ValueError, match=message):
        load(f"folder:{root}", "test", (8, 8), 4)
