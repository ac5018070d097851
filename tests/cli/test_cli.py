"""`keras-vit` as a user runs it, and the shorter commands."""

import csv
import shlex
import subprocess
import sys

import pytest

import keras_vit
from keras_vit.__main__ import run as run_process
from keras_vit.cli import main
from keras_vit.models import VARIANTS
from keras_vit.version import __version__
from tests.fixtures.commands import CASE, error_of, run
from tests.fixtures.reference import case_path


def test_models_have_their_sizes_and_costs(capsys):
    lines = run(capsys, "models").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [variant.name for variant in VARIANTS]
    assert lines[5].split()[-3:] == ["86.6", "M", "35.1"]
    # 384 is no multiple of its patches.
    assert run(capsys, "models", "--image-size", 384).splitlines()[10].split()[-1] == "-"
    lines = run(capsys, "models", "--flops").splitlines()
    # Three forward passes; a float32 has 4 bytes.
    assert lines[5].split() == ["ViT_B16", "86.6", "M", "35.1", "105.4", "112.0", "17.3"]
    lines = run(capsys, "models", "bit", "50", "--markdown").splitlines()
    assert [line.split()[1] for line in lines[2:]] == ["BiT_R50x1", "BiT_R50x2", "BiT_R50x3"]


def test_checkpoints_have_their_addresses(capsys):
    lines = run(capsys, "checkpoints", "b16", "augreg", "--urls").splitlines()
    found = [(line.split()[0], line.split()[-1]) for line in lines[1:]]
    assert found == [(row.name, row.url) for row in keras_vit.list_checkpoints("b16 augreg")]
    zero = run(capsys, "checkpoints", "ViT_L32/imagenet21k", "--markdown").splitlines()
    assert zero[2] == "| ViT_L32/imagenet21k | 224 | 21843 (zero) | - |"


@pytest.mark.slow
def test_a_run_is_evaluated_from_any_directory(finished_run, photos, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of_the_run = run(capsys, "evaluate", finished_run)
    # Two colours are learnt in 10 steps.
    assert "images: 4\n" in of_the_run and "accuracy: 1.0000" in of_the_run
    data = ("--data", f"folder:{photos}", "--split", "train")
    assert "images: 14\n" in run(capsys, "evaluate", finished_run / "last.keras", *data)


@pytest.mark.slow
def test_a_run_and_its_export_predict_the_same(finished_run, photos, tmp_path, capsys):
    files = [photos / "cat" / "0.jpg", photos / "dog" / "1.jpg"]
    run(capsys, "export", finished_run, tmp_path / "serving")
    for model in (finished_run, tmp_path / "serving", tmp_path / "serving" / "1"):
        lines = run(capsys, "predict", model, *files, "--top", 1).splitlines()
        found = [line.split()[:2] for line in lines]
        assert found == [[str(file), file.parent.name] for file in files]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate missing.keras", "`model` must be an existing file"),
        ("evaluate START", "`data` must be given"),
        ("evaluate START --data digits", "must have the model's 3 classes"),
        # Files are checked before the model is read.
        ("evaluate missing.keras --confusion PAGE", "must be a new .csv file"),
        ("evaluate missing.keras --confusion missing/x.csv", "in a folder that exists"),
        ("benchmark ViT_Ti16 --output PAGE", "`output` must be a new file"),
        ("predict PAGE PAGE", "`model` must be a complete Keras model"),
        ("export START serving --verify", "There must be an image"),
        ("convert FILE target", "`--to` must be given"),
        ("convert FILE target.h5 --to keras", "be `keras` only for .keras files"),
        ("convert FILE x.keras --image-size 33", "`image_size` must be a multiple"),
    ],
)
def test_what_cannot_work_is_refused(arguments, message, start, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.keras"
    page.write_text("<html>not found</html>")
    known = {"START": start, "PAGE": page, "FILE": case_path(CASE)}
    words = [known.get(word, word) for word in arguments.split()]
    assert message in error_of(capsys, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["page.keras"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("trian auto", "trian"),
        ("predict m a.jpg --topp 3", "--topp"),
        ("train auto --model ViT_Ti16 --data digits", "--workdir"),
        ("train finetune --model m --data d --workdir run --batch-size 0", "`batch_size` must be"),
    ],
)
def test_a_mistyped_command_writes_nothing(arguments, named, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_info:
        main(arguments.split())
    assert exit_info.value.code == 2
    assert named in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_predict_names_what_is_no_image_and_goes_on(start, photos, tmp_path, capsys):
    (tmp_path / "page.jpg").write_text("<html>not found</html>")
    good = next(photos.rglob("*.jpg"))
    images = [tmp_path / "missing.jpg", tmp_path / "page.jpg", good]
    table = tmp_path / "found.csv"
    with pytest.raises(SystemExit, match="1"):
        main(["predict", str(start), *map(str, images), "--top", "2", "--csv", str(table)])
    assert capsys.readouterr().out.startswith(str(good))
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    # The head is zero.
    share = f"{1 / 3:.5f}"
    found = [(row["image"], row["class"], row["probability"][: len(share)]) for row in rows]
    bad = [(str(image), "", "") for image in images[:2]]
    assert found == [*bad, (str(good), "0", share), (str(good), "1", share)]
    assert [bool(row["error"]) for row in rows] == [True, True, False, False]
    assert "must be a new .csv file" in error_of(capsys, "predict", start, good, "--csv", table)


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"keras-vit {__version__}\n"


@pytest.mark.parametrize("place", ["keras_vit.cli.main", "keras_vit.cli.models.Models.run"])
def test_a_command_that_is_stopped_ends_with_status_130(place, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    def leave(status):
        raise SystemExit(status)

    monkeypatch.setattr(place, stop)
    monkeypatch.setattr("sys.argv", ["keras-vit", "models"])
    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit, match="130"):
        run_process()
    assert capsys.readouterr().err == "keras-vit: stopped\n"


@pytest.mark.slow
def test_a_closed_standard_error_does_not_matter():
    command = [sys.executable, "-m", "keras_vit", "models", "ViT_Ti16"]
    shell = " ".join(map(shlex.quote, command)) + " 2>&-"
    found = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
    assert "ViT_Ti16" in found.stdout
