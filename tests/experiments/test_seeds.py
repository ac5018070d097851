"""Several seeds: their runs, what is written about them, and what is resumed."""

import dataclasses

import numpy as np
import pytest

from keras_vit.experiments import train_seeds
from keras_vit.experiments.grid import read_results
from keras_vit.experiments.sweep import SeedResults, best_of, finished_runs
from keras_vit.models.keras_files import load_model
from keras_vit.training import Run, trainer
from tests.fixtures.features import tiny_model
from tests.fixtures.small_runs import CLASSES, no_training, save_small_model, small_recipe

RECIPE = small_recipe(steps=6, warmup_steps=1, image_size=16, seed=3)
# Of seeds, in the order of the call.
ACCURACIES = {3: 0.75, 4: 0.5, 5: 1.0}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return save_small_model(tmp_path_factory.mktemp("start"))


def trained(calls):
    """Return a function that trains nothing, and records its calls."""

    def train(recipe, model, data, workdir, **options):
        calls.append((recipe.seed, workdir.name, options))
        workdir.mkdir(parents=True, exist_ok=True)
        history = [{"val_accuracy": 0.25}, {"val_accuracy": ACCURACIES[recipe.seed]}]
        return Run(None, history, workdir, recipe)

    return train


@pytest.mark.slow
def test_runs_are_those_of_single_runs_and_are_not_repeated(start, tmp_path, monkeypatch):
    options = {"classes": CLASSES, "strategy": "none"}
    results = train_seeds(RECIPE, start, "digits", tmp_path / "runs", seeds=2, **options)
    single = dataclasses.replace(RECIPE, seed=4)
    expected = trainer.train(single, start, "digits", tmp_path / "single", **options)
    other = load_model(tmp_path / "runs" / "seed-4" / "last.keras")
    for ours, theirs in zip(other.weights, expected.model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert results.values[4] == max(line["val_accuracy"] for line in expected.history)
    # The same again, and one seed more.
    fits = []
    fit = type(other).fit
    monkeypatch.setattr(type(other), "fit", lambda *a, **k: fits.append(1) or fit(*a, **k))
    arguments = (RECIPE, start, "digits", tmp_path / "runs")
    with pytest.raises(ValueError, match="`workdir` must be a new or empty directory"):
        train_seeds(*arguments, seeds=2, **options)
    assert train_seeds(*arguments, seeds=2, resume=True, **options) == results
    assert fits == []
    more = train_seeds(*arguments, seeds=3, resume=True, **options)
    assert (list(more.values), len(fits)) == ([3, 4, 5], 1)
    changed = dataclasses.replace(RECIPE, learning_rate=0.5)
    with pytest.raises(ValueError, match="begun with. Received: recipe.learning_rate=0.5"):
        train_seeds(changed, *arguments[1:], seeds=2, resume=True, **options)


def test_the_summary_has_the_best_accuracies_and_their_deviation(tmp_path):
    calls = []
    options = {"train": trained(calls), "keep": 1}
    results = train_seeds(RECIPE, "model", "digits", tmp_path / "runs", **options)
    assert results == SeedResults("val_accuracy", ACCURACIES)
    assert [name for _, name, _ in calls] == ["seed-3", "seed-4", "seed-5"]
    assert calls[0][2] == {"resume": False, "keep": 1}
    # Three values in equal steps: their deviation is the step.
    assert (results.mean, results.std) == (0.75, 0.25)
    rows = read_results(tmp_path / "runs" / "results.csv")
    assert {row["seed"]: row["val_accuracy"] for row in rows} == ACCURACIES
    assert finished_runs(tmp_path) == finished_runs("ViT_B16/augreg") == []


def test_the_summary_keeps_finished_runs_while_others_are_resumed(tmp_path):
    arguments = (RECIPE, "model", "digits", tmp_path / "runs")
    train_seeds(*arguments, seeds=3, train=trained([]))
    # Those that are asked for.
    results = train_seeds(*arguments, seeds=2, resume=True, train=trained([]))
    assert (list(results.values), results.mean) == ([3, 4], 0.625)
    names = [path.name for path in finished_runs(tmp_path / "runs")]
    assert names == ["seed-3", "seed-4", "seed-5"]


@pytest.mark.parametrize(
    ("monitor", "best"),
    [(None, 0.75), ("val_loss", 0.5), ("val_balanced_accuracy", 0.6)],
)
def test_the_best_value_is_that_of_the_metric_that_selects(monitor, best):
    history = [
        {"val_accuracy": 0.75, "val_loss": 0.9, "val_balanced_accuracy": 0.6},
        {"val_accuracy": 0.5, "val_loss": 0.5, "val_balanced_accuracy": 0.5},
    ]
    assert best_of(history, monitor) == (monitor or "val_accuracy", best)


def test_a_built_model_and_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`model` must be a name or a path"):
        train_seeds(RECIPE, tiny_model(), "digits", tmp_path / "runs")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="holds run.json"):
        train_seeds(RECIPE, "model", "digits", tmp_path, resume=True, train=no_training)
