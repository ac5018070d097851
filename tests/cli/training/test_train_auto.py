"""`keras-vit train auto`: the printed command repeats the run."""

import dataclasses
import os
import shlex

import pytest

from keras_vit.cli import main, parse
from keras_vit.cli.run_commands import train_command
from keras_vit.training import auto
from keras_vit.training.recipes import RECIPES
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import save_small_model, write_uneven_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_uneven_folder(tmp_path_factory.mktemp("photos"))


@pytest.mark.slow
def test_the_printed_command_repeats_the_run(photos, model, tmp_path, capsys):
    arguments = ["--model", model, "--data", f"folder:{photos}", "--fewshot-every", "50"]
    arguments += ["--fewshot-data", "digits", "--fewshot-classes", "0", "1"]
    main(["train", "auto", *arguments, "--workdir", str(tmp_path / "run"), "--seed", "4"])
    printed = capsys.readouterr().out
    (command,) = [line for line in printed.splitlines() if line.startswith("The same again: ")]
    _, *words = shlex.split(command.partition(": ")[2])
    assert parse(words).recipe.seed == 4
    main(words)
    for name in ("metrics.jsonl", "run.json"):
        again = tmp_path / "run-again" / name
        assert (tmp_path / "run" / name).read_text() == again.read_text()
    assert "Figure: " in printed
    assert (tmp_path / "run/confusion.png").exists()
    # A resumed run has the recipe that it was begun with, whatever is measured now.
    main(["train", "auto", *arguments, "--workdir", str(tmp_path / "run"), "--resume"])


@pytest.mark.examples
def test_short_runs_choose_the_learning_rate(photos, model, tmp_path, capsys, monkeypatch):
    two = dataclasses.replace(RECIPES["finetune"], learning_rates=(0.003, 0.03))
    monkeypatch.setitem(RECIPES, "finetune", two)
    arguments = ["--model", model, "--data", f"folder:{photos}"]
    main(["train", "auto", *arguments, "--workdir", str(tmp_path / "run"), "--sweep-lr"])
    rates = {path.name for path in (tmp_path / "run-sweep").iterdir()}
    assert rates == {"0.003", "0.03"}
    assert "The same again: keras-vit train finetune" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "may_freeze"),
    [((), True), (("--keep-head",), False), (("--teacher", "ViT_Ti16"), False)],
)
def test_the_printed_paths_are_absolute_and_a_kept_head_is_not_trained_alone(
    more, may_freeze, photos, model, capsys, monkeypatch
):
    class ChosenError(Exception):
        pass

    def stop(**_):
        raise ChosenError

    def choose(*_, **options):
        asked.update(options)
        return RECIPES["finetune"]

    asked = {}
    monkeypatch.setattr(auto, "auto_recipe", choose)
    monkeypatch.setattr("keras_vit.training.job.train", stop)
    monkeypatch.chdir(photos.parent)
    places = ["--data", f"folder:{photos.name}", "--model", os.path.relpath(model)]
    with pytest.raises(ChosenError):
        main(["train", "auto", *places, "--workdir", "run", *more])
    assert asked["may_freeze"] == may_freeze
    (line,) = capsys.readouterr().out.splitlines()
    assert f"--data folder:{photos} " in line
    assert f"--model {model} " in line
    assert f"--workdir {photos.parent}/run-again" in line


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_is_its_command(name):
    options = {"model": "ViT_Ti16", "data": "digits", "workdir": "run"}
    base = "finetune" if RECIPES[name].optimizer == "sgd" else "pretrain"
    _, *words = shlex.split(train_command(base, RECIPES[name], options))
    assert parse(words).recipe == RECIPES[name]


def test_three_images_are_one_line(tmp_path, capsys):
    write_folder(tmp_path / "photos", ("ant", "bee", "cow"), count=1)
    arguments = ["--model", "ViT_Ti16", "--data", f"folder:{tmp_path / 'photos'}"]
    with pytest.raises(SystemExit) as stopped:
        main(["train", "auto", *arguments, "--workdir", str(tmp_path / "run")])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("error:") == 1 and len(error.strip().splitlines()) <= 2
