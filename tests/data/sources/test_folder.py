"""Folders of images: their classes, their splits, and files that are not images."""

import collections
import os
import pathlib

import numpy as np
import pytest

from keras_vit.data import find_source, load
from keras_vit.data.sources.folder import RECORD, describe_left_out, list_images, short_names
from keras_vit.data.sources.splits import SPLITS
from tests.data.sources.test_digits import all_images, all_labels
from tests.fixtures.images import encode, random_image, write_folder


@pytest.mark.slow
def test_folder_of_one_level(tmp_path):
    write_folder(tmp_path, ("cat", "dog"), count=10, suffix=".webp")
    splits = [load(f"folder:{tmp_path}", split, (8, 8), 4) for split in SPLITS]
    assert [dataset.info.num_examples for dataset in splits] == [14, 2, 4]
    assert splits[0].class_names == ("cat", "dog")
    together = find_source(f"folder:{tmp_path}", "train+validation+test")
    ids = [together.find_id(number) for number in together.numbers]
    paths = tmp_path.rglob("*.webp")
    assert sorted(ids) == sorted(str(path.relative_to(tmp_path)) for path in paths)
    for dataset in splits:
        images, labels = all_images(dataset), all_labels(dataset)
        # Cats are red and dogs are green.
        np.testing.assert_array_equal(images.mean(axis=(1, 2)).argmax(axis=-1), labels)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [({"train": 10, "val": 2, "test": 3}, [20, 4, 6]), ({"train": 10, "test": 3}, [18, 2, 6])],
)
def test_folder_with_splits(counts, expected, tmp_path):
    for split, count in counts.items():
        write_folder(tmp_path / split, count=count)
    sizes = [load(f"folder:{tmp_path}", split, (8, 8), 4).info.num_examples for split in SPLITS]
    assert sizes == expected


def test_what_is_no_image_file_is_left_out(tmp_path):
    write_folder(tmp_path, count=10)
    (tmp_path / "cat" / "folder.jpg").mkdir()
    (tmp_path / "cat" / ".thumbnails" / "large").mkdir(parents=True)
    for name in ("._0.jpg", ".thumbnails/0.jpg", ".thumbnails/large/0.jpg", "notes.txt"):
        (tmp_path / "cat" / name).write_text("text")
    write_folder(tmp_path, (".ants",), count=3)
    dataset = load(f"folder:{tmp_path}", "train", 8, 4)
    assert dataset.info.num_examples == 14
    # `.thumbnails` counts as one.
    assert dataset.info.left_out == {
        "hidden": 2,
        "not an image (.txt)": 1,
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
    assert every[0].left_out == {"name is not UTF-8": 1}
    assert describe_left_out(collections.Counter({"in \udcff/": 1})).endswith("1 in \\udcff/")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            lambda root: (root / "picture.jpg").write_text(""),
            "must have an image.*the folders of the classes",
        ),
        (
            lambda root: (write_folder(root), (root / "bird").mkdir()),
            "Every class must have images: .*bird.*none",
        ),
        (
            lambda root: (
                write_folder(root / "train"),
                write_folder(root / "test", ("cat", "bird")),
            ),
            r"must be those of `train`. Received: \['bird'\]",
        ),
        (lambda root: write_folder(root, classes=("all",)), "at least two classes.*'all'"),
    ],
)
def test_wrong_folder(prepare, message, tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    prepare(root)
    with pytest.raises(ValueError, match=message):
        load(f"folder:{root}", "test", (8, 8), 4)


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
        "not an image (.txt)": 1,
        "not an image (without a suffix)": 1,
        "hidden": 1,
        "broken link": 1,
        "outside of a folder of a class": 1,
    }
    assert len(all_images(load(f"folder:{root}", "train+validation+test", 8, 4))) == 7


def test_linked_folders_are_followed_at_every_level(tmp_path):
    elsewhere = write_folder(tmp_path / "elsewhere", ("cat", "more"), count=3)
    root = write_folder(tmp_path / "photos", ("dog",), count=3)
    (root / "cat").symlink_to(elsewhere / "cat")
    (root / "dog" / "more").symlink_to(elsewhere / "more")
    # Round and round.
    (root / "dog" / "self").symlink_to(root / "dog")
    source = find_source(f"folder:{root}", "train+validation+test")
    ids = [source.find_id(number) for number in source.numbers]
    folders = ("cat", "dog", "dog/more")
    assert sorted(ids) == [f"{folder}/{number}.jpg" for folder in folders for number in range(3)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("cat", "Cat"), "differ by more than case and spaces. Received: 'Cat' and 'cat'"),
        (("cat", "d\nog"), r"strings of one line.*'d\\nog'"),
        (("cat", " "), "not empty.*' '"),
    ],
)
def test_classes_that_cannot_be_told_apart_are_refused(names, message, tmp_path):
    write_folder(tmp_path, names, count=3)
    with pytest.raises(ValueError, match=message):
        find_source(f"folder:{tmp_path}", "train")


def test_the_record_of_a_division_is_not_left_out(tmp_path):
    write_folder(tmp_path, count=4)
    for _ in range(2):
        assert not find_source(f"folder:{tmp_path}", "train").left_out
    assert (tmp_path / RECORD).exists()
    found, left_out = list_images(tmp_path)
    assert len(found) == 8 and not left_out


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
        (("validation",), "must have a split `train`.*'validation'"),
        (("cat", "dog", "Testing"), "must have a split `train`.*'test'"),
        (("train", "val", "valid"), "one folder for the split `validation`.*val/ and valid/"),
        (("train", "Train"), "one folder for the split `train`.*"),
    ],
)
def test_splits_never_become_classes(folders, message, tmp_path):
    for folder in folders:
        write_folder(tmp_path / folder, count=2)
    with pytest.raises(ValueError, match=f"(?s){message}.*"):
        find_source(f"folder:{tmp_path}", "train")


def test_a_class_named_as_a_split_is_refused(tmp_path):
    write_folder(tmp_path / "train", ("train", "bus"), count=3)
    with pytest.raises(ValueError, match="must not have the name of a split.*'train'"):
        find_source(f"folder:{tmp_path}", "train")


def test_splits_within_classes_are_refused(tmp_path):
    for name in ("cat", "dog"):
        write_folder(tmp_path / name, ("train", "val"), count=3)
    with pytest.raises(ValueError, match="must not have the name of a split"):
        find_source(f"folder:{tmp_path}", "train")


def test_one_folder_in_each_class_is_no_split(tmp_path):
    for name in ("n01443537", "n01629819"):
        write_folder(tmp_path / "train" / name, ("images",), count=10)
    source = find_source(f"folder:{tmp_path}", "train")
    assert source.class_names == ("n01443537", "n01629819")


def test_folders_next_to_splits_are_counted(tmp_path):
    write_folder(tmp_path / "train", count=4)
    write_folder(tmp_path / "unlabeled", ("a",), count=3)
    source = find_source(f"folder:{tmp_path}", "train")
    assert source.left_out == {"in unlabeled/, which is not a split": 3}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a/x.jpg", "../b/x.jpg"], ["here/a/x.jpg", "b/x.jpg"]),
        (["../b/x.jpg", "../b/../c/x.jpg"], ["b/x.jpg", "c/x.jpg"]),
        (["a/x.jpg", "a/y.jpg"], ["x.jpg", "y.jpg"]),
    ],
)
def test_names_do_not_lead_out_of_a_folder(files, names, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert list(short_names(files).values()) == names


def test_relative_and_absolute_paths_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = short_names(["a/x.jpg", str(tmp_path / "b" / "x.jpg")])
    assert list(names.values()) == ["a/x.jpg", "b/x.jpg"]


def test_a_suffix_does_not_color_the_terminal():
    text = describe_left_out(collections.Counter({"not an image (.\x1b[31m)": 1}))
    assert text == r"1 file or folder is left out: 1 not an image (.\x1b[31m)"
