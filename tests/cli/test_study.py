"""`keras-vit study` from its settings to the figure."""

import csv

import pytest

from keras_vit.cli import main
from tests.fixtures.commands import error_of
from tests.fixtures.small_runs import no_training


@pytest.mark.large
def test_a_study_of_data_sizes_is_measured_drawn_and_not_repeated(tmp_path, capsys):
    """Of a tenth of the images and of all of them, for as many steps; other classes few-shot."""
    settings = ["--image-size", "32", "--batch-size", "256", "--warmup-steps", "1"]
    arguments = ["digits_pretrain", "--data", "digits", "--workdir", str(tmp_path / "study")]
    classes = ["--classes", "0", "1", "2", "3", "4"]
    others = ["--fewshot-data", "digits", "--fewshot-classes", "5", "6", "7"]
    options = ["--shots", "2", "--values", "0.1", "1", "--epochs", "1", "--seeds", "1"]
    command = ["study", "data-size", *arguments, *settings, *classes, *others, *options]
    main(command)
    capsys.readouterr()
    with (tmp_path / "study" / "results.csv").open() as file:
        small, large = csv.DictReader(file)
    assert float(small["images"]) == pytest.approx(float(large["images"]) / 10, rel=0.1)
    assert small["exaflops"] == large["exaflops"]
    assert 0 < float(small["fewshot"]) < 1
    assert (tmp_path / "study" / "study.png").stat().st_size > 10_000
    main(command)
    assert "Epoch" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("positions --data digits --tune-learning-rates -1", "`learning_rate` must be a positive"),
        ("positions --data digits --finetune digits_finetune", "must be given together"),
        ("positions --data digits --image-size 24", "`image_size` must be a multiple of"),
        ("poolings", "The study 'poolings' needs `data`"),
    ],
)
def test_flags_are_the_arguments_of_a_study(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("keras_vit.training.trainer.train", no_training)
    name, *options = arguments.split()
    command = ["study", name, "digits_pretrain", *options, "--workdir", tmp_path / "study"]
    assert message in error_of(capsys, *command)
    assert not (tmp_path / "study").exists()
