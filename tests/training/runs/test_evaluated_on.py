"""Training images among those that a model is evaluated on are named."""

import json
import shutil

import pytest

from keras_vit.cli import main
from keras_vit.data import find_source
from keras_vit.training.runs.run import EXCLUDED_FILE
from tests.fixtures.commands import run, train_arguments
from tests.training.runs.recorded import images_of, trained_ids

pytestmark = pytest.mark.slow


def test_evaluate_names_renamed_and_copied_training_images(root, capsys, caplog):
    trained = sorted(trained_ids(root))
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert "trained on" not in caplog.text
    test = find_source(f"folder:{root / 'photos'}", "test")
    victim = root / "photos" / test.find_id(0)
    shutil.copy(root / "photos" / trained[0], victim)
    out = run(capsys, "evaluate", root / "run")
    assert "images: 4" in out
    assert "1 of the 4 images were trained on" in caplog.text
    assert test.find_id(0) in caplog.text
    caplog.clear()
    run(capsys, "evaluate", root / "run", "--split", "train")
    assert "trained on" not in caplog.text


def test_a_run_is_evaluated_without_what_it_left_out(root, capsys, caplog):
    left_out = images_of(root / "photos", "test").ids[:2]
    exclude = root / "run" / EXCLUDED_FILE
    exclude.write_text("".join(f"{id}\n" for id in left_out))
    run_file = root / "run" / "run.json"
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "exclude": str(exclude)}))
    assert "images: 2" in run(capsys, "evaluate", root / "run")
    exclude.unlink()
    assert "images: 4" in run(capsys, "evaluate", root / "run")
    assert "which is missing: none are left out" in caplog.text


def test_a_run_keeps_the_list_of_what_it_left_out(root, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exclude = tmp_path / "exclude.txt"
    exclude.write_text(images_of(root / "photos", "test").ids[0])
    arguments = train_arguments(root / "start.keras", root / "photos", tmp_path / "run")
    main([*arguments, "--exclude", "exclude.txt"])
    exclude.write_text("\n".join(images_of(root / "photos", "test").ids[:3]))
    assert "images: 3" in run(capsys, "evaluate", tmp_path / "run")


def test_other_data_are_checked_under_the_name_of_the_training_split(root, capsys, caplog):
    other = shutil.copytree(root / "photos", root / "other photos")
    run(capsys, "evaluate", root / "run", "--data", f"folder:{other}", "--split", "train")
    assert "14 of the 14 images were trained on" in caplog.text


def test_few_shots_of_training_images_are_told(root, capsys, caplog):
    data = ["--data", f"folder:{root / 'photos'}", "--shots", "1"]
    run(capsys, "fewshot", root / "run", *data)
    assert "trained on" not in caplog.text
    run(capsys, "fewshot", root / "run", *data, "--train-split", "test", "--test-split", "train")
    assert "14 of the 14 images were trained on" in caplog.text
