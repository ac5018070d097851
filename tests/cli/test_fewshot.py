"""`keras-vit fewshot`: the table that it prints."""

import json

import numpy as np
import pytest

from keras_vit.evaluation.fewshot import evaluate_fewshot
from tests.fixtures.commands import run
from tests.fixtures.features import tiny_model

pytestmark = pytest.mark.slow


def test_the_command_has_the_accuracies_of_the_function(capsys, tmp_path):
    model = tiny_model()
    model.save(tmp_path / "model.keras")
    path, classes = tmp_path / "x", ("7", "8", "9")
    command = ("fewshot", tmp_path / "model.keras", "--data", "digits", "--cache", path)
    command = (*command, "--classes", *classes)
    first = run(capsys, *command)
    lines = first.splitlines()
    accuracies = evaluate_fewshot(model, "digits", cache=path, classes=classes)
    for line, shots in zip(lines[1:], (1, 5, 10, 25), strict=True):
        values = [accuracies[shots, seed] for seed in range(3)]
        mean, spread = np.mean(values), np.std(values, ddof=1)
        assert line.split() == [str(shots), f"{mean:.4f}", "±", f"{spread:.4f}", "3"]
    assert accuracies[25, 0] > 1 / 3
    assert run(capsys, *command) == first
    options = ("--method", "knn", "--shots", "3", "all", "--seeds", "2")
    lines = run(capsys, *command, *options).splitlines()
    # All images are one choice.
    assert [(line.split()[0], line.split()[-1]) for line in lines[1:]] == [("3", "2"), ("all", "1")]
    assert len(list(path.iterdir())) == 2


def test_a_run_is_measured_on_its_own_data(capsys, finished_run):
    own = run(capsys, "fewshot", finished_run, "--shots", 1)
    data = json.loads((finished_run / "run.json").read_text())["data"]
    assert own == run(capsys, "fewshot", finished_run, "--data", data, "--shots", 1)
