"""Training, evaluation and prediction on real files of every kind, through the command line."""

import logging
import pathlib

import pytest

from keras_vit.cli import main, show_log
from keras_vit.data import load
from keras_vit.data.pipeline import images_of_classes
from keras_vit.models import vision_transformer
from tests.data.sources.test_tfds import Photos
from tests.fixtures.commands import run
from tests.fixtures.images import write_folder
from tests.fixtures.photos import (
    broken_images,
    odd_images,
    write_digits,
    write_photos,
)

RECIPE = ["--image-size", "16", "--batch-size", "16", "--steps", "8", "--warmup-steps", "2"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A ViT small enough for seconds."""
    path = tmp_path_factory.mktemp("model") / "tiny.keras"
    vision_transformer(
        patch_size=8, embedding_dim=8, depth=1, num_heads=2, mlp_dim=8, num_classes=2, image_size=16
    ).save(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of photographs, some odd and some broken."""
    folder = write_photos(tmp_path_factory.mktemp("data") / "my photos", 70, size=(60, 44))
    write_digits(folder / "digit 8", 8)
    for name, encoded in odd_images().items():
        (folder / "china" / f"odd_{name}").write_bytes(encoded)
    for name, encoded in broken_images().items():
        (folder / "flower" / f"broken_{name}").write_bytes(encoded)
    return folder


@pytest.fixture(scope="module")
def data(folder):
    """The same as TFRecord and other photographs in TFDS."""
    root = folder.parent
    main(["data", f"folder:{folder}", "--records", str(root / "records"), "--num-files", "2"])
    Photos.folder = write_photos(root / "raw", 24, size=(24, 20))
    Photos(data_dir=root / "tfds", config="small").download_and_prepare()
    return root


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("folder", marks=pytest.mark.examples),
        pytest.param("tfrecord", marks=pytest.mark.large),
        pytest.param("tfds", marks=pytest.mark.large),
    ],
)
def test_a_kind_of_data_is_trained_on_evaluated_and_predicted(kind, model, data, tmp_path, capsys):
    name, *options = {
        "folder": (f"folder:{data / 'my photos'}",),
        "tfrecord": (f"tfrecord:{data / 'records'}/{{split}}-*",),
        "tfds": ("tfds:photos:small", "--data-dir", str(data / "tfds")),
    }[kind]
    run = tmp_path / "run"
    arguments = ["--model", str(model), "--data", name, "--workdir", str(run), *RECIPE]
    main(["train", "finetune", *arguments, "--augmentation", "medium2", *options])
    main(["evaluate", str(run), "--split", "test", *options])
    assert "accuracy: " in capsys.readouterr().out
    photograph = data / "my photos" / "china" / "000.jpg"
    main(["predict", str(run), str(photograph)])
    # The first three; the file's own path names a class too.
    out = capsys.readouterr().out.replace(str(photograph), "")
    assert sum(name in out for name in ("china", "digit 8", "flower", "portrait")) == 3
    report = run / "skipped.txt"
    assert report.exists() == (kind == "folder")
    if report.exists():
        lines = report.read_text().splitlines()
        assert lines and all(line.startswith("flower/broken_") for line in lines)
        main(["evaluate", str(run), "--split", "train+validation+test"])
        out = capsys.readouterr().out
        assert "images: 402" in out and "10 of 412 images were skipped" in out


@pytest.mark.slow
def test_the_contact_sheet_has_all_classes(tmp_path):
    photos = write_folder(tmp_path / "photos", "abcdefgh", count=200)
    source = load(f"folder:{photos}", "train", 16, batch_size=32)
    images, labels = images_of_classes(source, count=12)
    # In the order of the folder, the first 200 images are of two classes.
    assert set(labels) == {0, 1} and len(images) == 12
    source = load(f"folder:{photos}", "train", 16, batch_size=32, fraction=0.1)
    assert set(images_of_classes(source, count=12)[1]) == set(range(8))


@pytest.mark.slow
def test_every_image_that_cannot_be_decoded_is_named(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "photos", count=20)
    for path in (tmp_path / "photos").glob("*/1?.jpg"):
        path.write_bytes(path.read_bytes()[:100])
    run(capsys, "data", f"folder:{tmp_path / 'photos'}", "--image-size", 8)
    skipped = {record.args[0] for record in caplog.records if record.msg.startswith("skipped")}
    assert skipped == {
        f"{kind}/{number}.jpg" for kind in ("cat", "dog") for number in range(10, 20)
    }


@pytest.mark.examples
def test_copies_are_found_and_left_out_of_the_training(folder, model, tmp_path, capsys):
    """The test images are put among those for training, and are found and left out."""
    exclude = tmp_path / "exclude.txt"
    name = f"folder:{folder}"
    main(["deduplicate", name, name, "--train-split", "test", "--output", str(exclude)])
    out = capsys.readouterr().out
    assert "80 of 83 images are in a test set" in out
    ids = [line for line in exclude.read_text().splitlines() if not line.startswith("# ")]
    assert len(ids) > 30
    assert all((folder / pathlib.Path(id)).exists() for id in ids)
    run = tmp_path / "run"
    arguments = ["--model", str(model), "--data", name, "--workdir", str(run), *RECIPE]
    main(["train", "finetune", *arguments, "--exclude", str(exclude)])
    assert (run / "excluded.txt").read_text() == exclude.read_text()


def test_log_lines_have_no_control_characters(capsys):
    show_log()
    logging.getLogger("keras_vit").info("skipped %s", "\x1b[31mcat.jpg")
    assert capsys.readouterr().err == "keras-vit: skipped \\x1b[31mcat.jpg\n"
