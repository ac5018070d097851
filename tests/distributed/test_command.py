"""`keras-vit predict`: datasets, lines, and what it refuses."""

import pytest

from keras_vit.distributed.batch import Job
from keras_vit.serving import Predictor
from tests.fixtures.commands import error_of, run
from tests.fixtures.predicted.parts import rows_of


@pytest.mark.slow
def test_labels_and_splits_of_a_dataset(path, photos, tmp_path, capsys):
    name = f"folder:{photos}"
    run(capsys, "predict", path, name, "--output", tmp_path / "all")
    rows = rows_of(tmp_path / "all")
    assert all(row["label"] == id.split("/")[0] for id, row in rows.items()) and len(rows) == 40
    run(capsys, "predict", path, name, "--output", tmp_path / "test", "--split", "test")
    assert rows_of(tmp_path / "test").keys() < rows.keys()


def test_lines_are_printed_without_an_output(path, photos, capsys):
    with pytest.raises(SystemExit) as exit_info:
        run(capsys, "predict", path, photos, "--top", 1)
    assert exit_info.value.code == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 38
    assert printed.out.startswith("cat/0.jpg  ")
    errors = [line for line in printed.err.splitlines() if "error" in line]
    assert errors[0] == "keras-vit: error: cat/5.jpg: HTML or XML, which is not decoded"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shard", "3/2"], "`--shard` must be I/N with 1 <= I <= N. Received: '3/2'"),
        (["--shard", "1"], "`--shard` must be I/N"),
        (["--processes", "0"], "`--processes` must be positive. Received: 0"),
        (["--part-size", "0"], "`--part-size` must be"),
        (["--address", "auto"], "`--address` and `--gpus` are for `--engine ray`"),
        (["--outputs", "labels"], "`--outputs` must be one of"),
        (["--split", "test"], "`--split` is for datasets"),
        (["--top", "1"], "`--top` is for lines, without `--output`"),
        (["--csv", "found.csv"], "`--csv` is for lines, without `--output`"),
    ],
)
def test_flags_are_checked(flags, message, path, photos, tmp_path, capsys):
    output = tmp_path / "one"
    assert message in error_of(capsys, "predict", path, photos, "--output", output, *flags)
    assert not output.exists()


def test_an_output_is_not_among_the_images(path, photos, capsys):
    for images in (photos, f"folder:{photos}"):
        for output in (photos / "found", photos):
            line = error_of(capsys, "predict", path, images, "--output", output)
            assert "`--output` must not be in the folder of the images" in line
    assert not (photos / "found").exists()


def test_an_output_in_the_working_directory(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Job(Predictor(path), ("digits",), "found").output == tmp_path / "found"


@pytest.mark.slow
def test_predictions_in_a_directory_of_the_name_of_the_dataset(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        printed = run(capsys, "predict", path, "digits", "--split", "test", "--output", "digits")
    assert "1 of 1 files are there already" in printed


def test_flags_of_files_need_an_output(path, photos, capsys):
    line = error_of(capsys, "predict", path, photos, "--processes", 2)
    assert "`--processes` is for `--output`. Received: no --output" in line


def test_images_that_are_not_there_make_no_directory(path, tmp_path, capsys):
    for name in ("missing", "missing/*.jpg", "missing.parquet"):
        line = error_of(capsys, "predict", path, tmp_path / name, "--output", tmp_path / "one")
        assert "`images` must exist. Received: " in line
    assert not (tmp_path / "one").exists()


def test_a_model_that_is_not_there_makes_no_directory(photos, tmp_path, capsys):
    error_of(capsys, "predict", tmp_path / "no.keras", photos, "--output", tmp_path / "one")
    assert not (tmp_path / "one").exists()
