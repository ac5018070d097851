"""Copies of training images among the held-out ones are told."""

import shutil

import pytest

from keras_vit.cli.train import Train
from keras_vit.data import find_source, load, write_records
from keras_vit.data.leaks import find_copies
from tests.images import encode, random_image, write_folder
from tests.test_cli import run, train_arguments


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


def test_copies_are_found(photos):
    splits = {split: find_source(f"folder:{photos}", split) for split in ("train", "test")}
    everything = find_source(f"folder:{photos}", "train+validation")
    assert find_copies(everything, splits["test"]) == [("test/cat/copy.jpg", "train/dog/3.jpg")]
    assert find_copies(find_source("digits", "train"), splits["test"]) == []


def test_broken_and_vanished_files_are_nobodys_copies(photos):
    everything = find_source(f"folder:{photos}", "train+validation")
    for path in [*photos.glob("train/*/1?.jpg"), photos / "test" / "dog" / "new.jpg"]:
        path.write_bytes(b"")
    test = find_source(f"folder:{photos}", "test")
    (photos / "test" / "dog" / "new.jpg").unlink()
    (photos / "train" / "cat" / "0.jpg").unlink()
    assert find_copies(everything, test) == [("test/cat/copy.jpg", "train/dog/3.jpg")]


def test_copies_in_records_are_found(photos, tmp_path, caplog):
    for split in ("train", "test"):
        write_records(find_source(f"folder:{photos}", split), tmp_path / "records", split)
    name = f"tfrecord:{tmp_path}/records/{{split}}-*"
    # Which records are held out depends on their order, which is random.
    trained = "train+validation"
    sources = [find_source(name, split) for split in (trained, "test")]
    ((copy, twin),) = find_copies(*sources)
    assert copy.startswith("test-00000-of-00001.tfrecord#")
    assert twin.startswith("train-00000-of-00001.tfrecord#")
    train = load(name, trained, 16, 7)
    Train(None, "", name, tmp_path)._report_files(name, train, trained)
    assert f"1 of 3 images of the split test are copies of images of {trained}" in caplog.text


def test_data_and_train_warn(photos, tmp_path, capsys, caplog):
    from keras_vit.models import vision_transformer
    from tests.models.test_vit import TINY

    run(capsys, "data", f"folder:{photos}", "--picture", tmp_path / "data.png")
    warning = "1 of 3 images of the split test are copies of images of train"
    assert warning in caplog.text
    assert "test/cat/copy.jpg = train/dog/3.jpg" in caplog.text
    caplog.clear()
    vision_transformer(**TINY).save(tmp_path / "start.keras")
    (photos / "train" / "cat" / "notes.txt").write_text("text")
    out = run(capsys, *train_arguments(tmp_path / "start.keras", photos, tmp_path / "run"))
    assert warning in caplog.text
    assert "1 file is left out: 1 no image (.txt)" in out
