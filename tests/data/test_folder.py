"""Folders of images, digits and their splits."""

import collections
import os
import pathlib

import numpy as np
import pytest

from keras_vit.data import load
from keras_vit.data.datasets import find_source
from keras_vit.data.sources.division import RECORD
from keras_vit.data.sources.listing import describe_left_out, list_images
from keras_vit.data.sources.splits import SPLITS, find_parts, stratified_part
from tests.fixtures.images import encode, random_image, write_folder


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
    write_folder(tmp_path, (".ants",), count=3)
    dataset = load(f"folder:{tmp_path}", "train", 8, 4)
    assert dataset.num_examples == 14
    assert dataset.left_out == {
        # `.thumbnails` counts as one.
        "hidden": 2,
        "no image (.txt)": 1,
        "hidden folder .ants/": 1,
    }


@pytest.mark.parametrize("name", [b"\xff.jpg", b"\xff/0.jpg"])
def test_names_that_are_not_utf8_are_left_out(name, tmp_path):
    write_folder(tmp_path, count=10)
    path = pathlib.Path(os.fsdecode(os.fsencode(tmp_path / "cat") + b"/" + name))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((tmp_path / "cat" / "0.jpg").read_bytes())
    every = [find_source(f"folder:{tmp_path}", split) for split in SPLITS]
    assert sum(source.num_examples for source in every) == 20
    assert every[0].left_out == {"named in another encoding than UTF-8": 1}
    assert describe_left_out(collections.Counter({"in \udcff/": 1})).endswith("1 in \\udcff/")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda root: None, "one folder for each class.*which has none"),
        (lambda root: (root / "picture.jpg").write_text(""), "one folder for each class"),
        (
            lambda root: (write_folder(root), (root / "bird").mkdir()),
            "Every class must have images: .*bird.*none",
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


@pytest.mark.parametrize(
    ("folders", "split"),
    [
        (("training", "testing"), "test"),
        (("Train", "Test"), "test"),
        (("TRAIN", "valid"), "test"),
        (("train", "dev"), "test"),
        (("training", "Val", "tests"), "validation"),
    ],
)
def test_splits_are_recognized_by_their_names(folders, split, tmp_path):
    for folder in folders:
        write_folder(tmp_path / folder, count=4 if folder[0] in "tT" else 3)
    source = find_source(f"folder:{tmp_path}", split)
    assert source.class_names == ("cat", "dog")
    assert {source.find_id(number).partition("/")[0] for number in source.numbers} == {folders[1]}


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (("validation",), "must have a folder `train`.*validation/ and without train/"),
        (("cat", "dog", "Testing"), "class must not have the name of a split.*Testing/"),
        (("train", "val", "valid"), "one folder for the split `validation`.*val/ and valid/"),
        (("train", "Train"), "one folder for the split `train`.*"),
        (("train_images", "images-Test"), "must be named `train`.*images-Test, train_images"),
        (("Trainset", "testset"), "must be named `train`.*Trainset, testset"),
        (("fold1", "fold2", "fold3"), "must not hold the same folders.*fold1, fold2, fold3.*cat"),
    ],
)
def test_splits_never_become_classes(folders, message, tmp_path):
    for folder in folders:
        write_folder(tmp_path / folder, count=2)
    with pytest.raises(ValueError, match=f"(?s){message}.*"):
        find_source(f"folder:{tmp_path}", "train")


def test_a_class_named_as_a_split_is_refused(tmp_path):
    write_folder(tmp_path, ("train", "bus"), count=3)
    with pytest.raises(ValueError, match="a class must not have the name of a split"):
        find_source(f"folder:{tmp_path}", "train")


def test_classes_may_have_the_name_of_a_split_as_a_word(tmp_path):
    write_folder(tmp_path, ("train station", "test tube", "trainers"), count=3)
    source = find_source(f"folder:{tmp_path}", "train")
    assert source.class_names == ("test tube", "train station", "trainers")


def test_one_folder_in_each_class_is_no_split(tmp_path):
    for name in ("n01443537", "n01629819"):
        write_folder(tmp_path / "train" / name, ("images",), count=10)
    source = find_source(f"folder:{tmp_path}", "train")
    assert source.class_names == ("n01443537", "n01629819")


def test_images_are_taken_by_their_bytes_and_others_counted(tmp_path):
    root = write_folder(tmp_path / "photos", count=2)
    jpeg, png = encode(random_image(), "JPEG"), encode(random_image())
    for name, data in {
        "a.jfif": jpeg,
        "b.JPE": jpeg,
        "no_suffix": png,
        "c.tif": encode(random_image(), "TIFF"),
        "d.heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        "e.avif": b"\0\0\0\x18ftypavif\0\0\0\0mif1",
        "notes.txt": b"text",
        "empty": b"",
        ".DS_Store": b"",
    }.items():
        (root / "cat" / name).write_bytes(data)
    (root / "readme.txt").write_text("text")
    (root / "dog" / "gone").symlink_to(tmp_path / "nowhere")
    source = find_source(f"folder:{root}", "train+validation+test")
    ids = {source.find_id(number) for number in source.numbers}
    assert {"cat/a.jfif", "cat/b.JPE", "cat/no_suffix"} < ids
    assert len(ids) == 7
    assert source.left_out == {
        "TIFF, which is not decoded": 1,
        "HEIC, which is not decoded": 1,
        "AVIF, which is not decoded": 1,
        "no image (.txt)": 1,
        "no image (without a suffix)": 1,
        "hidden": 1,
        "a link to nothing": 1,
        "outside of a folder of a class": 1,
    }
    images = all_images(load(f"folder:{root}", "train+validation+test", 8, 4))
    assert len(images) == 7


def test_linked_folders_are_followed_at_every_level(tmp_path):
    elsewhere = write_folder(tmp_path / "elsewhere", ("cat", "more"), count=3)
    root = write_folder(tmp_path / "photos", ("dog",), count=3)
    (root / "cat").symlink_to(elsewhere / "cat")
    (root / "dog" / "more").symlink_to(elsewhere / "more")
    # Round and round.
    (root / "dog" / "self").symlink_to(root / "dog")
    source = find_source(f"folder:{root}", "train+validation+test")
    ids = [source.find_id(number) for number in source.numbers]
    assert sorted(ids) == [
        *(f"cat/{number}.jpg" for number in range(3)),
        *(f"dog/{number}.jpg" for number in range(3)),
        *(f"dog/more/{number}.jpg" for number in range(3)),
    ]


def test_folders_next_to_splits_are_counted(tmp_path):
    write_folder(tmp_path / "train", count=4)
    write_folder(tmp_path / "unlabeled", ("a",), count=3)
    source = find_source(f"folder:{tmp_path}", "train")
    assert source.left_out == {"in unlabeled/, which is no split": 3}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("cat", "Cat"), "differ by more than case. Received: 'Cat' and 'cat'"),
        (("cat", "d\nog"), r"strings of one line.*'d\\nog'"),
        (("cat", " "), "not empty.*' '"),
    ],
)
def test_classes_that_cannot_be_told_apart_are_refused(names, message, tmp_path):
    write_folder(tmp_path, names, count=3)
    with pytest.raises(ValueError, match=message):
        find_source(f"folder:{tmp_path}", "train")


@pytest.mark.parametrize(
    ("classes", "message"),
    [(("1",), "have at least two"), (("1", "1"), "each be there once"), ((), "be among")],
)
def test_two_classes_at_least_are_chosen(classes, message):
    with pytest.raises(ValueError, match=f"`classes` must {message}"):
        find_source("digits", "train", classes=classes)


def test_the_record_of_a_division_is_not_left_out(tmp_path):
    write_folder(tmp_path, count=4)
    for _ in range(2):
        assert not find_source(f"folder:{tmp_path}", "train").left_out
    assert (tmp_path / RECORD).exists()
    found, left_out = list_images(tmp_path)
    assert len(found) == 8 and not left_out
