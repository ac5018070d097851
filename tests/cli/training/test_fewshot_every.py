"""`keras-vit train --fewshot-every`: what it writes."""

import json
import re

import pytest

from keras_vit.cli import main
from tests.fixtures.commands import run, train_arguments

EVERY = "--fewshot-every 4 --fewshot-data digits"


@pytest.mark.slow
def test_the_last_accuracy_is_that_of_the_command(start, photos, tmp_path, capsys):
    options = [*EVERY.split(), "--fewshot-shots", "1", "5", "--fewshot-classes", "3", "8"]
    run(capsys, *train_arguments(start, photos, tmp_path / "run", *options))
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rows = [line for line in lines if "step" in line]
    assert [row["step"] for row in rows] == [4, 8, 10]
    command = ("fewshot", tmp_path / "run" / "last.keras", "--data", "digits", "--classes", 3, 8)
    table = run(capsys, *command, "--shots", 1, 5).splitlines()
    for line, count in zip(table[1:], (1, 5), strict=True):
        mean, deviation = rows[-1][f"fewshot_{count}shot"], rows[-1][f"fewshot_{count}shot_std"]
        assert line.split() == [str(count), f"{mean:.4f}", "±", f"{deviation:.4f}", "3"]


@pytest.mark.examples
def test_a_sweep_measures_each_of_its_runs(start, photos, tmp_path):
    rates = ["--sweep-lr", "--learning-rates", "1e-6", "0.1"]
    main(train_arguments(start, photos, tmp_path / "run", *rates, *EVERY.split()))
    files = [*(tmp_path / "run-sweep").glob("*/metrics.jsonl"), tmp_path / "run" / "metrics.jsonl"]
    assert len(files) == 3
    for path in files:
        steps = re.findall(r'"step": (\d+)', path.read_text())
        assert steps == ["4", "8", "10"]
