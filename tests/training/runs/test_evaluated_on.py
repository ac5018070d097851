"""Images that a run is evaluated on: not those that it was trained on, or left out."""

import json
import shutil

import pytest

from keras_vit.cli import main
from keras_vit.data import find_source
from keras_vit.training.resumable_fit import EXCLUDED_FILE
from tests.fixtures.commands import error_of, run, train_arguments

pytestmark = pytest.mark.slow


def ids_of_test(root):
    source = find_source(f"folder:{root / 'photos'}", "test")
    return [*map(source.find_id, source.numbers.tolist())]


def test_an_evaluation_of_the_training_images_is_told(root, capsys, caplog):
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert "trained on" not in caplog.text
    run(capsys, "evaluate", root / "run", "--split", "train")
    assert "the model was trained on these images" in caplog.text
    caplog.clear()
    other = shutil.copytree(root / "photos", root / "other photos")
    run(capsys, "evaluate", root / "run", "--data", f"folder:{other}", "--split", "train")
    assert "the model was trained on these images" in caplog.text


def test_a_run_is_evaluated_without_what_it_left_out(root, capsys):
    left_out = ids_of_test(root)[:2]
    exclude = root / "run" / EXCLUDED_FILE
    exclude.write_text("".join(f"{id}\n" for id in left_out))
    run_file = root / "run" / "run.json"
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "exclude": str(exclude)}))
    assert "images: 2" in run(capsys, "evaluate", root / "run")
    exclude.unlink()
    assert EXCLUDED_FILE in error_of(capsys, "evaluate", root / "run")


def test_a_run_keeps_the_list_of_what_it_left_out(root, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exclude = tmp_path / "exclude.txt"
    exclude.write_text(ids_of_test(root)[0])
    arguments = train_arguments(root / "start.keras", root / "photos", tmp_path / "run")
    main([*arguments, "--exclude", "exclude.txt"])
    exclude.write_text("\n".join(ids_of_test(root)[:3]))
    assert "images: 3" in run(capsys, "evaluate", tmp_path / "run")
