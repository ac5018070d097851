"""`keras-vit train --resume --workdir RUN` goes on with what the run has recorded."""

import dataclasses
import json
import pathlib

import pytest

from keras_vit.cli import main, parse
from keras_vit.cli.resumed import STUDY_FILE, check_chosen
from keras_vit.cli.train import Auto
from keras_vit.experiments.studies.table import FACTS
from keras_vit.training.recipes import RECIPES
from tests.fixtures.commands import error_of
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import save_small_model, small_model, small_recipe

RUN = {
    "model": "ViT_Ti16",
    "data": "digits",
    "split": "train",
    "classes": ["3", "5"],
    "dtype": None,
    "class_names": ["3", "5"],
    "num_examples": 120,
    "id": "0123456789abcdef",
}


def write_run(folder, recipe, **facts):
    folder.mkdir()
    run = {"recipe": dataclasses.asdict(recipe), **RUN, **facts}
    (folder / "run.json").write_text(json.dumps(run))
    return str(folder)


# One of each kind: staircases, losses, lists of rates.
KINDS = ("finetune", "pretrain", "segment", "masked_patches", "bit_hyperrule_small")


@pytest.mark.parametrize("name", KINDS)
def test_a_recipe_is_read_back(name, tmp_path):
    recipe = dataclasses.replace(RECIPES[name], seed=7, clip_norm=None)
    handling = {"save_steps": 5, "keep": 3, "max_skipped": 0.5, "data_dir": "/data"}
    workdir = write_run(tmp_path / "run", recipe, fraction=0.5, **handling)
    command = parse(["train", "--resume", "--workdir", workdir, "--save-steps", "9"])
    assert command.recipe == recipe
    assert (command.model, command.data, command.classes) == ("ViT_Ti16", "digits", ("3", "5"))
    assert (command.fraction, command.save_steps, command.resume) == (0.5, 9, True)
    assert (command.keep, command.max_skipped, command.data_dir) == (3, 0.5, pathlib.Path("/data"))
    assert str(command.workdir) == workdir


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ("model_parallel", 2, True)),
        (("--strategy", "model_parallel"), ("model_parallel", 2, True)),
        (("--strategy", "auto"), ("auto", None, True)),
    ],
)
def test_the_strategy_is_the_runs_unless_another_is_given(words, expected, tmp_path):
    facts = {"strategy": "model_parallel", "model_shards": 2, "keep_head": True}
    workdir = write_run(tmp_path / "run", RECIPES["finetune"], **facts)
    command = parse(["train", "--resume", "--workdir", workdir, *words])
    assert (command.strategy, command.model_shards, command.keep_head) == expected


@pytest.mark.slow
def test_a_run_goes_on_by_the_command_that_it_prints(tmp_path, caplog):
    model, workdir = save_small_model(tmp_path), str(tmp_path / "run")
    sizes = ("--image-size", "16", "--batch-size", "64", "--steps", "4", "--warmup-steps", "1")
    begin = ("train", "digits_finetune", "--model", model, "--data", "digits", *sizes)
    main([*begin, "--workdir", workdir, "--strategy", "none"])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["strategy"] == "none"
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    main(["train", "--resume", "--workdir", workdir])
    assert "the run ended after batch 4" in caplog.text
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == metrics


@pytest.mark.slow
def test_a_run_goes_on_from_another_directory_and_after_its_model_has_moved(
    tmp_path, monkeypatch, capsys
):
    model, workdir = pathlib.Path(save_small_model(tmp_path)), str(tmp_path / "run")
    sizes = ("--image-size", "16", "--batch-size", "64", "--steps", "4", "--warmup-steps", "1")
    begin = ("train", "digits_finetune", "--model", model.name, "--data", "digits", *sizes)
    again = ("train", "--resume", "--workdir", workdir)
    monkeypatch.chdir(tmp_path)
    main([*begin, "--workdir", workdir])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    main([*again])
    moved = str(model.rename(model.with_name("moved.keras")))
    error = error_of(capsys, *again)
    assert "must be the model that the run was begun with" in error and str(model) in error
    assert "The run has ended: there is nothing to resume." in error
    main([*again, "--model", moved])
    # The run has recorded the place.
    main([*again])
    other = str(tmp_path / "other.keras")
    small_model(small_recipe(image_size=16)).save(other)
    error = error_of(capsys, *again, "--model", other)
    assert f"model='{other}' instead of '{moved}'" in error


@pytest.mark.slow
def test_a_run_goes_on_after_its_images_have_moved(tmp_path, capsys):
    photos = write_folder(tmp_path / "photos", ("ant", "bee"), count=20)
    workdir = str(tmp_path / "run")
    sizes = ("--image-size", "16", "--batch-size", "8", "--steps", "2", "--warmup-steps", "1")
    begin = ("train", "finetune", "--model", save_small_model(tmp_path), *sizes)
    main([*begin, "--data", f"folder:{photos}", "--workdir", workdir])
    moved = photos.rename(tmp_path / "moved")
    again = ("train", "--resume", "--workdir", workdir)
    error = error_of(capsys, *again)
    assert "must be the images that the run was begun with" in error and str(photos) in error
    main([*again, "--data", f"folder:{moved}"])
    main([*again])
    next(moved.glob("ant/*.jpg")).unlink()
    assert "must have the training images" in error_of(capsys, *again)


def test_a_run_of_a_study_is_refused(tmp_path, capsys):
    assert FACTS == STUDY_FILE
    (tmp_path / FACTS).write_text("{}")
    for folder in (tmp_path / "run", tmp_path / "run" / "finetuning"):
        workdir = write_run(folder, RECIPES["finetune"])
        error = error_of(capsys, "train", "--resume", "--workdir", workdir)
        assert "a run of `keras-vit study`, which the study resumes" in error


def test_a_directory_may_have_the_name_of_a_recipe(tmp_path):
    workdir = write_run(tmp_path / "auto", RECIPES["finetune"])
    assert parse(["train", "--workdir", workdir, "--resume"]).recipe == RECIPES["finetune"]
    words = ["train", "--resume", "finetune", "--workdir", workdir, "--model", "m", "--data", "d"]
    assert parse(words).model == "m"


def test_measurements_go_on(tmp_path):
    measured = {"every": 5, "data": "digits", "shots": [1, 5], "seeds": [0, 1], "classes": None}
    workdir = write_run(tmp_path / "a run", RECIPES["finetune"], measurements=[measured])
    command = parse(["train", f"--workdir={workdir}", "--resume"])
    assert (command.fewshot_every, command.fewshot_data) == (5, "digits")
    assert (command.fewshot_shots, command.fewshot_seeds) == ((1, 5), 2)


def test_what_cannot_go_on_is_refused(tmp_path, capsys):
    begun = write_run(tmp_path / "run", RECIPES["finetune"], split="train+validation")
    error = error_of(capsys, "train", "--resume", "--workdir", begun)
    assert "needs the command or the call that began it" in error
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.json").write_text("{}")
    error = error_of(capsys, "train", "--resume", "--workdir", tmp_path / "empty")
    assert "`--workdir` must be the directory of a run" in error
    error = error_of(capsys, "train", "--resume", "--workdir", tmp_path / "none")
    assert "`--workdir` must be the directory of a run, with a run.json" in error


def test_auto_goes_on_with_the_settings_of_the_run_or_refuses():
    recipe = dataclasses.replace(RECIPES["finetune"], image_size=64, seed=3)
    for auto in (Auto(), Auto(minutes=1, image_size=64, seed=3)):
        assert check_chosen(auto, recipe) is recipe
    for name, value in {"image_size": 32, "seed": 7, "upright": True}.items():
        with pytest.raises(ValueError, match=f"`{name}` must be .* Received: {name}={value}"):
            check_chosen(Auto(**{name: value}), recipe)
