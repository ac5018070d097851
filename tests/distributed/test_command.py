"""`keras-vit predict`: datasets, lines, and what it refuses."""

import pytest

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
    assert "cat/5.jpg" not in printed.out and "cat/5.jpg" in printed.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shard", "3/2"], "`--shard` must be I/N"),
        (["--split", "test"], "`split` is for datasets"),
        (["--csv", "found.csv"], "`csv`, `output` and `masks` exclude each other"),
    ],
)
def test_flags_that_would_be_ignored_are_refused(flags, message, path, photos, tmp_path, capsys):
    output = tmp_path / "one"
    assert message in error_of(capsys, "predict", path, photos, "--output", output, *flags)
    assert not output.exists()


def test_an_output_is_not_among_the_images(path, photos, capsys):
    for images in (photos, f"folder:{photos}"):
        for output in (photos / "found", photos):
            line = error_of(capsys, "predict", path, images, "--output", output)
            assert "`output` must not be in the folder of the images" in line
    assert not (photos / "found").exists()


@pytest.mark.slow
def test_predictions_in_a_directory_of_the_name_of_the_dataset(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        printed = run(capsys, "predict", path, "digits", "--split", "test", "--output", "digits")
    assert "1 of 1 files exist already" in printed


@pytest.mark.parametrize(("model", "images"), [("model.keras", "missing"), ("no.keras", "photos")])
def test_what_is_not_there_makes_no_directory(model, images, path, photos, tmp_path, capsys):
    arguments = (path.with_name(model), photos.with_name(images))
    error_of(capsys, "predict", *arguments, "--output", tmp_path / "one")
    assert not (tmp_path / "one").exists()
