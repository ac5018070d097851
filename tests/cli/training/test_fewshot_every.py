"""`keras-vit train --fewshot-every`: what it prints and writes, and what it refuses."""

import json
import re

import pytest

from tests.fixtures.commands import error_of, run, train_arguments
from tests.fixtures.small_runs import no_training

EVERY = "--fewshot-every 4 --fewshot-data digits"


@pytest.mark.slow
def test_the_last_accuracy_is_that_of_the_command(start, photos, tmp_path, capsys):
    options = [*EVERY.split(), "--fewshot-shots", "1", "5", "--fewshot-classes", "3", "8"]
    out = run(capsys, *train_arguments(start, photos, tmp_path / "run", *options))
    number = r"(\d+\.\d\d)%"
    shown = re.search(
        rf"After 10 steps: 1-shot accuracy {number} ± {number}, 5-shot accuracy {number} ± ", out
    )
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rows = [line for line in lines if "step" in line]
    assert [row["step"] for row in rows] == [4, 8, 10]
    command = ("fewshot", tmp_path / "run" / "last.keras", "--data", "digits", "--classes", 3, 8)
    table = run(capsys, *command, "--shots", 1, 5).splitlines()
    for line, count in zip(table[1:], (1, 5), strict=True):
        mean, deviation = rows[-1][f"fewshot_{count}shot"], rows[-1][f"fewshot_{count}shot_std"]
        assert line.split() == [str(count), f"{mean:.4f}", "±", f"{deviation:.4f}", "3"]
    assert float(shown[3]) == pytest.approx(100 * rows[-1]["fewshot_5shot"], abs=0.005)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--fewshot-every 4", "`--fewshot-every` and `--fewshot-data` must be given together"),
        ("--fewshot-data digits", "`--fewshot-every` and `--fewshot-data` must be given together"),
        (f"{EVERY} --fewshot-every 0", "`every` must be an integer of at least 1"),
        (f"{EVERY} --fewshot-data cifar", "must be `digits`"),
        (f"{EVERY} --fewshot-data imagenet2012_real", "`split` of imagenet2012_real must be among"),
        (f"{EVERY} --fewshot-shots 0", "`shots` must be positive integers"),
        (f"{EVERY} --fewshot-classes ten", "`classes` must be among 0, 1"),
    ],
)
def test_wrong_options(options, message, start, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("keras_vit.training.trainer.make_task", no_training)
    assert message in error_of(
        capsys, *train_arguments(start, photos, tmp_path / "run", *options.split())
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.examples
def test_a_sweep_measures_each_of_its_runs(start, photos, tmp_path, capsys):
    rates = ["--sweep-lr", "--learning-rates", "1e-6", "0.1"]
    run(capsys, *train_arguments(start, photos, tmp_path / "run", *rates, *EVERY.split()))
    files = [*(tmp_path / "run-sweep").glob("*/metrics.jsonl"), tmp_path / "run" / "metrics.jsonl"]
    assert len(files) == 3
    for path in files:
        steps = re.findall(r'"step": (\d+)', path.read_text())
        assert steps == ["4", "8", "10"]
