"""Folders of splits and folders of classes are distinguished."""

import pytest

from keras_vit.data import find_source
from tests.fixtures.images import write_folder


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


def test_classes_one_folder_deeper_are_found(tmp_path):
    write_folder(tmp_path / "my photos")
    with pytest.raises(
        ValueError, match=f"two folders of classes; folder:{tmp_path}/my photos has 2"
    ):
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
