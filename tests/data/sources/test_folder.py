"""Folders of images: their classes, their splits, and files that are not images."""

import os
import pathlib

import numpy as np
import pytest
from PIL import features

from keras_vit.data import find_source, load
from keras_vit.data.sources.folder import short_names
from keras_vit.data.sources.splits import SPLITS
from tests.fixtures.images import encode, random_image, write_folder

EVERY = "+".join(SPLITS)


def ids_of(root):
    source = find_source(f"folder:{root}", EVERY)
    return {source.find_id(number) for number in source.numbers}


@pytest.mark.slow
def test_folder_of_one_level(tmp_path):
    write_folder(tmp_path, ("cat", "dog"), count=10, suffix=".webp")
    splits = [load(f"folder:{tmp_path}", split, (8, 8), 4) for split in SPLITS]
    assert [dataset.info.num_examples for dataset in splits] == [14, 2, 4]
    assert splits[0].class_names == ("cat", "dog")
    assert ids_of(tmp_path) == {f"{name}/{n}.webp" for name in ("cat", "dog") for n in range(10)}
    for dataset in splits:
        for images, labels in dataset.as_numpy_iterator():
            # Cats are red and dogs are green.
            np.testing.assert_array_equal(images.mean(axis=(1, 2)).argmax(axis=-1), labels)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [({"train": 10, "val": 2, "test": 3}, [20, 4, 6]), ({"train": 10, "test": 3}, [18, 2, 6])],
)
def test_folder_with_splits(counts, expected, tmp_path):
    for split, count in counts.items():
        write_folder(tmp_path / split, count=count)
    sizes = [find_source(f"folder:{tmp_path}", split).num_examples for split in SPLITS]
    assert sizes == expected


def test_names_that_are_not_utf8_are_left_out(tmp_path):
    write_folder(tmp_path)
    path = pathlib.Path(os.fsdecode(os.fsencode(tmp_path / "cat") + b"/\xff.jpg"))
    path.write_bytes((tmp_path / "cat" / "0.jpg").read_bytes())
    source = find_source(f"folder:{tmp_path}", EVERY)
    assert (source.num_examples, source.left_out) == (8, {"name is not UTF-8": 1})


def test_images_are_taken_by_their_bytes_and_others_counted(tmp_path):
    root = write_folder(tmp_path / "photos", count=2)
    write_folder(root, (".ants",), count=1)
    (root / "cat" / "folder.jpg").mkdir()
    jpeg, png = encode(random_image(), "JPEG"), encode(random_image())
    for name, data in {
        "a.jfif": jpeg,
        "b.JPE": jpeg,
        "no_suffix": png,
        "c.tif": encode(random_image(), "TIFF"),
        "d.jp2": b"\0\0\0\x0cjP  \r\n\x87\n",
        "e.npy": b"",
        "e.avif": b"\0\0\0\x18ftypavif\0\0\0\0mif1",
        "notes.txt": b"text",
        "._0.jpg": b"",
    }.items():
        (root / "cat" / name).write_bytes(data)
    (root / "readme.txt").write_text("text")
    (root / "dog" / "gone").symlink_to(tmp_path / "nowhere")
    taken = {f"{name}/{number}.jpg" for name in ("cat", "dog") for number in range(2)}
    taken |= {"cat/e.npy"} | ({"cat/e.avif"} if features.check("avif") else set())
    assert ids_of(root) == taken | {"cat/a.jfif", "cat/b.JPE", "cat/no_suffix", "cat/c.tif"}
    left_out = dict(find_source(f"folder:{root}", EVERY).left_out)
    # Old versions of Pillow do not decode AVIF.
    left_out.pop("AVIF, which is not decoded", None)
    assert left_out == {
        "JPEG 2000, which is not decoded": 1,
        "not an image (.txt)": 1,
        "hidden": 1,
        "hidden folder .ants/": 1,
        "broken link": 1,
        "outside of a folder of a class": 1,
    }


def test_linked_folders_are_followed_at_every_level(tmp_path):
    elsewhere = write_folder(tmp_path / "elsewhere", ("cat", "more"), count=3)
    root = write_folder(tmp_path / "photos", ("dog",), count=3)
    (root / "cat").symlink_to(elsewhere / "cat")
    (root / "dog" / "more").symlink_to(elsewhere / "more")
    # Round and round.
    (root / "dog" / "self").symlink_to(root / "dog")
    folders = ("cat", "dog", "dog/more")
    assert ids_of(root) == {f"{folder}/{number}.jpg" for folder in folders for number in range(3)}


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ([], "must have an image"),
        (["all"], "at least two classes"),
        (["cat", "Cat"], "differ by more than case and spaces"),
        (["cat", "d\nog"], "strings of one line"),
        (["validation/cat", "validation/dog"], "must have a split `train`"),
        (["cat", "dog", "Testing/cat"], "must have a split `train`"),
        (["train/cat", "train/dog", "val/cat", "valid/dog"], "one folder for the split"),
        (["train/cat", "train/dog", "test/bird"], "must be those of `train`"),
        (["train/train", "train/bus"], "must not have the name of a split"),
        (["cat/train", "cat/val", "dog/train", "dog/val"], "must not have the name of a split"),
    ],
    ids=str,
)
def test_folders_whose_classes_or_splits_are_unclear_are_refused(folders, message, tmp_path):
    for folder in folders:
        write_folder(tmp_path / folder, ("",), count=3)
    with pytest.raises(ValueError, match=message):
        find_source(f"folder:{tmp_path}", "train")


@pytest.mark.parametrize(
    ("folders", "split"),
    [
        (("training", "testing"), "test"),
        (("TRAIN", "valid"), "test"),
        (("train", "dev"), "test"),
        (("Train", "Val", "tests"), "validation"),
    ],
)
def test_splits_are_recognized_by_their_names(folders, split, tmp_path):
    for folder in folders:
        write_folder(tmp_path / folder, count=4 if folder[0] in "tT" else 3)
    source = find_source(f"folder:{tmp_path}", split)
    assert source.class_names == ("cat", "dog")
    assert {source.find_id(number).partition("/")[0] for number in source.numbers} == {folders[1]}


def test_one_folder_in_each_class_is_no_split(tmp_path):
    for name in ("n01443537", "n01629819"):
        write_folder(tmp_path / "train" / name, ("images",), count=10)
    source = find_source(f"folder:{tmp_path}", "train")
    assert source.class_names == ("n01443537", "n01629819")


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
