"""`keras-vit train --seeds`, and `keras-vit evaluate` of its runs."""

import re
import statistics

import pytest

from keras_vit.cli import main
from keras_vit.experiments.grid import read_results
from tests.fixtures.commands import error_of, run, train_arguments


@pytest.fixture(scope="module")
def seeds(start, photos, tmp_path_factory):
    """The directory of two runs."""
    workdir = tmp_path_factory.mktemp("seeds") / "runs"
    main(train_arguments(start, photos, workdir, "--seeds", "2", "--seed", "5"))
    return workdir


@pytest.mark.slow
def test_runs_are_resumed_and_their_mean_is_printed(seeds, start, photos, capsys):
    command = train_arguments(start, photos, seeds, "--seeds", "2", "--seed", "5", "--resume")
    out = run(capsys, *command)
    # Nothing is trained again.
    assert "loss" not in out
    rows = read_results(seeds / "results.csv")
    assert [row["seed"] for row in rows] == [5, 6]
    values = [100 * row["val_accuracy"] for row in rows]
    mean, deviation = f"{statistics.mean(values):.2f}", f"{statistics.stdev(values):.2f}"
    assert f"Best validation accuracy of 2 seeds: {mean}% ± {deviation}%\n" in out
    for seed in (5, 6):
        assert (seeds / f"seed-{seed}" / "confusion.png").exists()


@pytest.mark.slow
def test_evaluate_prints_the_mean_of_the_runs(seeds, tmp_path, capsys):
    single = [
        float(re.search(r"\naccuracy: (\S+)", run(capsys, "evaluate", seeds / f"seed-{seed}"))[1])
        for seed in (5, 6)
    ]
    out = run(capsys, "evaluate", seeds)
    first, mean = out.split("mean of 2 runs:\n")
    assert list(map(float, re.findall(r"\naccuracy: (\S+)", first))) == single
    found = re.search(r"^accuracy: (\S+) ± (\S+)$", mean, re.MULTILINE)
    assert float(found[1]) == pytest.approx(statistics.mean(single), abs=1e-4)
    assert float(found[2]) == pytest.approx(statistics.stdev(single), abs=1e-4)
    message = error_of(capsys, "evaluate", seeds, "--confusion", tmp_path / "confusion.csv")
    assert "need a single run" in message


@pytest.mark.examples
def test_each_seed_has_its_own_sweep(start, photos, tmp_path, capsys):
    more = ["--seeds", "2", "--sweep-lr", "--learning-rates", "1e-6", "0.1"]
    out = run(capsys, *train_arguments(start, photos, tmp_path / "runs", *more))
    assert out.count("<- chosen") == 2
    assert len([*(tmp_path / "runs").glob("seed-?-sweep")]) == 2
    assert "mean of 2 runs" in run(capsys, "evaluate", tmp_path / "runs")


@pytest.mark.examples
def test_each_seed_of_auto_is_trained_once(start, photos, tmp_path, capsys):
    command = ["train", "auto", "--model", start, "--data", f"folder:{photos}", "--seeds", "2"]
    command = [*command, "--workdir", tmp_path / "auto", "--seed", "3"]
    run(capsys, *command)
    assert {path.name for path in (tmp_path / "auto").glob("seed-*")} == {"seed-3", "seed-4"}
    assert "loss" not in run(capsys, *command, "--resume")
