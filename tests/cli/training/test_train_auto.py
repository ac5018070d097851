"""`keras-vit train auto`."""

import dataclasses

import pytest

from keras_vit.checkpoints.run_files import read_run
from keras_vit.cli import main
from keras_vit.training import auto
from keras_vit.training.recipe import RECIPES
from tests.fixtures.commands import error_of
from tests.fixtures.small_runs import save_small_model, write_uneven_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_uneven_folder(tmp_path_factory.mktemp("photos"))


@pytest.mark.slow
def test_a_resumed_run_has_the_recipe_that_it_was_begun_with(photos, model, tmp_path, capsys):
    arguments = ["--model", model, "--data", f"folder:{photos}", "--fewshot-every", "50"]
    arguments += ["--fewshot-data", "digits", "--fewshot-classes", "0", "1"]
    arguments = ["train", "auto", *arguments, "--workdir", str(tmp_path / "run")]
    main([*arguments, "--seed", "4"])
    assert "Figure: " in capsys.readouterr().out
    assert (tmp_path / "run/confusion.png").exists()
    recipe = read_run(tmp_path / "run" / "last.keras")["recipe"]
    main([*arguments, "--resume"])
    assert read_run(tmp_path / "run" / "last.keras")["recipe"] == recipe
    error = error_of(capsys, *arguments, "--resume", "--seed", "5")
    assert "seed=5 instead of 4" in error


@pytest.mark.examples
def test_short_runs_choose_the_learning_rate(photos, model, tmp_path, monkeypatch):
    two = dataclasses.replace(RECIPES["finetune"], learning_rates=(0.003, 0.03))
    monkeypatch.setitem(RECIPES, "finetune", two)
    arguments = ["--model", model, "--data", f"folder:{photos}"]
    main(["train", "auto", *arguments, "--workdir", str(tmp_path / "run"), "--sweep-lr"])
    rates = {path.name for path in (tmp_path / "run-sweep").iterdir() if path.is_dir()}
    assert rates == {"0.003", "0.03"}


@pytest.mark.parametrize(
    ("more", "may_freeze"),
    [((), True), (("--keep-head",), False), (("--teacher", "ViT_Ti16"), False)],
)
def test_a_kept_head_is_not_trained_alone(more, may_freeze, photos, model, monkeypatch):
    class ChosenError(Exception):
        pass

    def stop(**_):
        raise ChosenError

    def choose(*_, **options):
        asked.update(options)
        return RECIPES["finetune"]

    asked = {}
    monkeypatch.setattr(auto, "auto_recipe", choose)
    monkeypatch.setattr("keras_vit.training.trainer.train", stop)
    with pytest.raises(ChosenError):
        main(
            ["train", "auto", "--data", f"folder:{photos}", "--model", model, *more, "--workdir=w"]
        )
    assert asked["may_freeze"] == may_freeze
