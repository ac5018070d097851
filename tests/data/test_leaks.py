"""Copies of training images among the held-out ones are told."""

import shutil

import pytest
from PIL import Image

from keras_vit.data import find_source, leaks, load, write_records
from keras_vit.data.fingerprints import fingerprints
from keras_vit.data.leaks import check_splits, find_copies
from keras_vit.models import vision_transformer
from keras_vit.training.job import warn_of_splits
from tests.fixtures.commands import run, train_arguments
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.tiny import TINY


@pytest.fixture
def photos(tmp_path):
    """A folder with its own test images, one of which is a copy, and one of the same size."""
    root = tmp_path / "photos"
    write_folder(root / "train", count=20)
    for name in ("cat", "dog"):
        (root / "test" / name).mkdir(parents=True)
    shutil.copy(root / "train" / "dog" / "3.jpg", root / "test" / "cat" / "copy.jpg")
    (root / "test" / "dog" / "new.jpg").write_bytes(encode(random_image(seed=77), "JPEG"))
    original = (root / "train" / "dog" / "3.jpg").read_bytes()
    (root / "test" / "dog" / "same_size.jpg").write_bytes(original[:-3] + b"\0\xff\xd9")
    return root


def prints(name, split):
    return fingerprints(find_source(name, split))


def warnings_of(caplog, name, splits=("train", "validation", "test")):
    caplog.clear()
    check_splits({split: find_source(name, split) for split in splits})
    return caplog.messages


def test_copies_are_found(photos):
    trained, test = (prints(f"folder:{photos}", split) for split in ("train+validation", "test"))
    assert find_copies(trained, test) == [("test/cat/copy.jpg", "train/dog/3.jpg")]


def test_broken_and_vanished_files_are_nobodys_copies(photos):
    for path in [*photos.glob("train/*/1?.jpg"), photos / "test" / "dog" / "new.jpg"]:
        path.write_bytes(b"")
    everything, test = (find_source(f"folder:{photos}", s) for s in ("train+validation", "test"))
    (photos / "train" / "cat" / "0.jpg").unlink()
    (photos / "test" / "dog" / "same_size.jpg").unlink()
    found = find_copies(fingerprints(everything), fingerprints(test))
    assert found == [("test/cat/copy.jpg", "train/dog/3.jpg")]


@pytest.mark.slow
def test_copies_in_records_are_found(photos, tmp_path, caplog):
    for split in ("train", "test"):
        write_records(find_source(f"folder:{photos}", split), tmp_path / "records", split)
    name = f"tfrecord:{tmp_path}/records/{{split}}-*"
    # Which records are held out depends on their order, which is random.
    trained = "train+validation"
    ((copy, twin),) = find_copies(*(prints(name, split) for split in (trained, "test")))
    assert copy.startswith("test-00000-of-00001.tfrecord#")
    assert twin.startswith("train-00000-of-00001.tfrecord#")
    train = load(name, trained, 16, 7)
    warn_of_splits(name, {trained: train, "validation": None})
    assert f"1 of 3 images of the split test are copies of images of {trained}" in caplog.text


def test_what_is_neither_files_nor_records_is_not_checked(caplog):
    assert warnings_of(caplog, "digits") == []


def test_copies_of_validation_images_in_the_test_split_are_named(tmp_path, caplog):
    name = f"folder:{write_folder(tmp_path, count=20)}"
    assert warnings_of(caplog, name) == []
    validation, test = (prints(name, split).ids for split in ("validation", "test"))
    shutil.copy(tmp_path / validation[0], tmp_path / test[0])
    (line,) = warnings_of(caplog, name)
    assert "1 of 8 images of the split test are copies of images of validation: " in line
    assert f"{test[0]} = {validation[0]}" in line


def test_images_with_two_labels_are_named(tmp_path, caplog):
    name = f"folder:{write_folder(tmp_path, count=20)}"
    cats, dogs = ([id for id in prints(name, "train").ids if id[:3] == c] for c in ("cat", "dog"))
    shutil.copy(tmp_path / cats[0], tmp_path / dogs[0])
    # Copies with one label are another matter.
    shutil.copy(tmp_path / cats[0], tmp_path / cats[1])
    (line,) = warnings_of(caplog, name)
    assert line == f"copies with different labels: 1 ({dogs[0]} = {cats[0]})"


def test_train_reads_the_images_of_a_split_once(photos, tmp_path, monkeypatch):
    name = f"folder:{photos}"
    data = {split: load(name, split, 16, 4) for split in ("train", "validation")}
    for dataset in data.values():
        dataset.fingerprints()
    read = []
    monkeypatch.setattr(leaks, "fingerprints", lambda s: read.append(s) or fingerprints(s))
    warn_of_splits(name, data)
    assert [source.num_examples for source in read] == [3]


TEST_IDS = ("test/cat/copy.jpg", "test/dog/new.jpg", "test/dog/same_size.jpg")


@pytest.mark.parametrize(
    ("exclude", "count"),
    [((), 1), (TEST_IDS[:1], 0), (TEST_IDS, 0), (("train/dog/3.jpg", "train/cat/0.jpg"), 0)],
)
def test_copies_that_are_left_out_are_not_warned_of(exclude, count, photos, tmp_path, caplog):
    train = load(f"folder:{photos}", "train+validation", 16, 4, exclude=exclude)
    file = tmp_path / "exclude.txt"
    file.write_text("\n".join(exclude))
    warn_of_splits(f"folder:{photos}", {"train+validation": train}, exclude=file)
    assert len([line for line in caplog.messages if "are copies of images" in line]) == count


def test_classes_without_held_out_images_are_named(tmp_path, caplog):
    for split, classes in (("train", "abc"), ("val", "ab"), ("test", "b")):
        write_folder(tmp_path / split, classes, count=2, size=16 if split == "train" else 8)
    lines = warnings_of(caplog, f"folder:{tmp_path}")
    assert "classes without an image: 1 of 3 in the split validation: c" in lines
    assert "classes without an image: 2 of 3 in the split test: a, c" in lines


@pytest.mark.slow
def test_data_and_train_warn(photos, tmp_path, capsys, caplog):
    run(capsys, "data", f"folder:{photos}", "--picture", tmp_path / "data.png")
    warning = "1 of 3 images of the split test are copies of images of train"
    assert warning in caplog.text
    assert "test/cat/copy.jpg = train/dog/3.jpg" in caplog.text
    caplog.clear()
    vision_transformer(**TINY).save(tmp_path / "start.keras")
    (photos / "train" / "cat" / "notes.txt").write_text("text")
    run(capsys, *train_arguments(tmp_path / "start.keras", photos, tmp_path / "run"))
    assert warning in caplog.text
    assert "1 file or folder is left out: 1 not an image (.txt)" in caplog.text


def test_photographs_that_are_not_upright_are_counted(tmp_path, caplog):
    root = write_folder(tmp_path / "photos", count=20)
    exif = Image.Exif()
    exif[0x0112] = 6
    for path in root.glob("cat/1?.jpg"):
        Image.open(path).save(path, exif=exif)
    ((message),) = warnings_of(caplog, f"folder:{root}")
    assert message.startswith(
        "not stored upright (EXIF orientation), and not turned: 10 of 40 images"
    )
    caplog.clear()
    check_splits({"train": find_source(f"folder:{root}", "train")}, upright=True)
    assert not caplog.messages
