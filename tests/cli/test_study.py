"""`keras-vit study` from its settings to the figure, and mistakes."""

import csv
import json

import pytest

from keras_vit.cli import main
from tests.fixtures.commands import error_of
from tests.fixtures.small_runs import no_training


@pytest.mark.large
def test_command(tmp_path, capsys):
    """Of a tenth of the images and of all of them, for as many steps; other classes few-shot."""
    settings = ["--image-size", "32", "--batch-size", "256", "--warmup-steps", "1"]
    arguments = ["digits_pretrain", "--data", "digits", "--workdir", str(tmp_path / "study")]
    classes = ["--classes", "0", "1", "2", "3", "4"]
    others = ["--fewshot-data", "digits", "--fewshot-classes", "5", "6", "7"]
    options = ["--shots", "2", "--values", "0.1", "1", "--epochs", "1", "--seeds", "1"]
    command = ["study", "data-size", *arguments, *settings, *classes, *others, *options]
    main(command)
    assert "few-shot accuracy" in capsys.readouterr().out
    with (tmp_path / "study" / "results.csv").open() as file:
        small, large = csv.DictReader(file)
    assert float(small["images"]) == pytest.approx(float(large["images"]) / 10, rel=0.1)
    assert small["exaflops"] == large["exaflops"]
    assert 0 < float(small["fewshot"]) < 1
    assert (tmp_path / "study" / "study.png").stat().st_size > 10_000
    for name in ("ViT_Ti16_10_seed_0", "ViT_Ti16_100_seed_0"):
        run = tmp_path / "study" / name
        # The same recipe, and as many evaluations to choose from.
        assert json.loads((run / "run.json").read_text())["recipe"]["epochs"] == 1
        assert len((run / "metrics.jsonl").read_text().splitlines()) == 1
    main(command)
    assert "Epoch" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("positions digits_pretrain --seeds 0", "`seeds` must be an integer of at least 1"),
        ("positions digits_pretrain --models ViT_X16", "`variant` must be the name of"),
        ("positions digits_pretrain --models BiT_R50x1", "must have patches for the study"),
        ("positions digits_pretrain --values 3-D", "`values` must be one of"),
        (
            "positions digits_pretrain --tune-learning-rates -1",
            "`learning_rate` must be a positive",
        ),
        ("shapes digits_pretrain --values 0.3", "`values` must leave depth=12 of ViT_Ti16 a"),
        ("shapes digits_pretrain --models BiT_R50x1", "must have patches for the study 'shapes'"),
        ("pretraining digits_pretrain", "`finetune` and `finetune_data` must be given together"),
        (
            "datasets digits_pretrain --values digits",
            "`finetune` and `finetune_data` must be given together",
        ),
        ("positions digits_pretrain --models", "needs `models` and `values`"),
        ("positions digits_pretrain --image-size 24", "`image_size` must be a multiple of"),
        (
            "pretraining digits_pretrain --image-size 64 --finetune digits_finetune "
            "--finetune-data digits",
            "must be a multiple of",
        ),
        (
            "positions digits_pretrain --finetune-image-size 64",
            "`recipe` must be a `Recipe` or one",
        ),
        ("positions digits_pretrain --finetune none", "`recipe` must be a `Recipe` or one of"),
        ("positions digits_pretrain --finetune digits_finetune", "must be given together"),
        ("data-size digits_pretrain --fewshot-data digits --fewshot-classes 2", "at least two"),
    ],
)
def test_wrong_commands(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("keras_vit.training.trainer.train", no_training)
    data = "" if "--data " in arguments else "--data digits"
    workdir = tmp_path / "study"
    command = f"study {arguments} {data} --workdir".split()
    assert message in error_of(capsys, *command, workdir)
    assert not workdir.exists()


def test_a_study_needs_data(tmp_path, capsys):
    command = ["study", "poolings", "digits_pretrain", "--workdir", tmp_path / "study"]
    assert "The study 'poolings' needs `data`" in error_of(capsys, *command)
    command[1] = "datasets"
    assert "`values` for the study 'datasets'" in error_of(capsys, *command)


def test_a_study_has_a_recipe_of_the_table(tmp_path, capsys):
    command = ["study", "poolings", "auto", "--data", "digits", "--workdir", tmp_path / "study"]
    with pytest.raises(SystemExit):
        main(list(map(str, command)))
    assert "auto" in capsys.readouterr().err
