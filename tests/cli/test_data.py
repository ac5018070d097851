"""Training, evaluation and prediction on real files of every kind, through the command line."""

import logging
import pathlib

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit.cli import main, show_log
from keras_vit.cli.data import Data
from keras_vit.data import load
from keras_vit.data.pipeline import images_of_classes
from keras_vit.models import vision_transformer
from tests.data.sources.test_tfds import Photos
from tests.fixtures.commands import run
from tests.fixtures.images import write_folder
from tests.fixtures.photos import (
    broken_images,
    odd_images,
    photographs,
    to_bytes,
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
    ("kind", "skipped"),
    [
        pytest.param("folder", 10, marks=pytest.mark.examples),
        pytest.param("tfrecord", 0, marks=pytest.mark.large),
        pytest.param("tfds", 0, marks=pytest.mark.large),
    ],
)
def test_train_evaluate_predict(kind, skipped, model, data, tmp_path, capsys):
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
    assert report.exists() == (skipped > 0)
    if report.exists():
        reasons = dict(line.split("\t") for line in report.read_text().splitlines())
        assert 0 < len(reasons) <= skipped
        assert all(name.startswith("flower/broken_") and reasons[name] for name in reasons)
        main(["evaluate", str(run), "--split", "train+validation+test"])
        out = capsys.readouterr().out
        assert "images: 402" in out
        assert "10 of 412 images were skipped: flower/broken_animated.webp" in out


@pytest.mark.examples
def test_data_draws_what_is_trained_on(folder, tmp_path, capsys):
    picture = tmp_path / "sheet.png"
    main(["data", f"folder:{folder}", "--picture", str(picture), "--image-size", "32"])
    out = capsys.readouterr().out
    assert "train: 289 images\nvalidation: 40 images\ntest: 83 images\n" in out
    assert "4 classes: china, digit 8, flower, portrait" in out
    assert "images/s" in out
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    assert pixels.shape[0] > 800
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000


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
def test_data_names_every_image_that_cannot_be_decoded(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "photos", count=30)
    for path in (tmp_path / "photos").glob("*/1?.jpg"):
        path.write_bytes(path.read_bytes()[:100])
    out = run(capsys, "data", f"folder:{tmp_path / 'photos'}", "--image-size", 8)
    lines = [line for line in out.splitlines() if "were skipped" in line]
    assert sum(int(line.split(": ")[1].split()[0]) for line in lines) == 20
    assert "validation: all images can be decoded" in out
    skipped = {record.args[0] for record in caplog.records if record.msg.startswith("skipped")}
    assert skipped == {
        f"{kind}/{number}.jpg" for kind in ("cat", "dog") for number in range(10, 20)
    }


def test_data_lists_the_papers_datasets(capsys):
    main(["data"])
    out = capsys.readouterr().out
    assert "imagenet2012 " in out
    assert "vtab/smallnorb_elevation" in out


@pytest.mark.examples
def test_a_turned_photograph_is_predicted_as_it_is_seen(model, tmp_path, capsys):
    image = Image.fromarray(photographs()["china"])
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, encoded in {
        "seen.png": to_bytes(image.rotate(-90, expand=True), "PNG"),
        "stored.png": to_bytes(image, "PNG", exif=exif),
        "unturned.png": to_bytes(image, "PNG"),
    }.items():
        (tmp_path / name).write_bytes(encoded)
    trained = keras.models.load_model(model)
    trained.get_layer("head").kernel.assign(keras.random.normal((8, 2), seed=0))
    trained.save(tmp_path / "trained.keras")
    main(["export", str(tmp_path / "trained.keras"), str(tmp_path / "serving")])
    for predictor in ("trained.keras", "serving"):
        files = [str(tmp_path / name) for name in ("seen.png", "stored.png", "unturned.png")]
        capsys.readouterr()
        main(["predict", str(tmp_path / predictor), *files])
        lines = capsys.readouterr().out.splitlines()
        seen, stored, unturned = (line.split("  ", 1)[1] for line in lines)
        assert seen == stored != unturned


@pytest.mark.examples
def test_deduplicate_and_exclude(folder, model, tmp_path, capsys):
    """The test images are put among those for training, and are found and left out."""
    exclude = tmp_path / "exclude.txt"
    name = f"folder:{folder}"
    main(["deduplicate", name, name, "--train-split", "test", "--output", str(exclude)])
    out = capsys.readouterr().out
    assert f"{name}: 83 of 412 images (split test)\n{name}: 412 images (all images)\n" in out
    assert "80 of 83 images are in a test set" in out
    ids = [line for line in exclude.read_text().splitlines() if not line.startswith("# ")]
    assert len(ids) > 30
    assert all((folder / pathlib.Path(id)).exists() for id in ids)
    run = tmp_path / "run"
    arguments = ["--model", str(model), "--data", name, "--workdir", str(run), *RECIPE]
    main(["train", "finetune", *arguments, "--exclude", str(exclude)])
    again = [*arguments, "--workdir", str(tmp_path / "again")]
    with pytest.raises(SystemExit):
        main(["train", "finetune", *again, "--exclude", str(tmp_path / "none.txt")])
    assert "No such file" in capsys.readouterr().err


def test_names_of_classes_do_not_color_the_terminal(tmp_path, capsys):
    write_folder(tmp_path / "photos", ("\x1b[31mcat", "dog"), count=20)
    Data(f"folder:{tmp_path / 'photos'}").find_splits()
    printed = capsys.readouterr().out
    assert r"2 classes: \x1b[31mcat, dog" in printed and "\x1b" not in printed


def test_log_lines_do_not_color_the_terminal(capsys):
    show_log()
    logging.getLogger("keras_vit").info("skipped %s", "\x1b[31mcat.jpg")
    assert capsys.readouterr().err == "keras-vit: skipped \\x1b[31mcat.jpg\n"
