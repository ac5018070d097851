"""Runs that are measured regularly: their files, their end, and what stops them."""

import dataclasses
import json

import numpy as np
import pytest

from keras_vit.evaluation import FewshotAccuracy, evaluate_fewshot
from keras_vit.models.keras_files import load_model
from keras_vit.training.callbacks import MeasureRegularly
from keras_vit.training.save_callbacks import SaveState
from tests.fixtures.run_to_be_killed import RECIPE, train
from tests.fixtures.small_runs import CLASSES, small_fit, small_model, small_recipe
from tests.fixtures.stopped import assert_same_variables
from tests.fixtures.stopping import stopping

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")
# Two epochs of 13 steps, each of two batches.
SHORT = dataclasses.replace(RECIPE, batch_size=32, steps=26, ema_momentum=0.97)


def fewshot(every, shots=(2,)):
    return MeasureRegularly(every, FewshotAccuracy("digits", shots, (0, 1), classes=CLASSES))


def lines_of(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def places_of(workdir):
    """Return `(epoch, step)` of the lines of the metrics, of which each has one."""
    return [(line.get("epoch"), line.get("step")) for line in lines_of(workdir)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory, the model and the callback of a run that is not stopped."""
    workdir, callback = tmp_path_factory.mktemp("whole") / "run", fewshot(5)
    model, _ = train(workdir, SHORT, callbacks=[callback])
    return workdir, model, callback


@pytest.mark.slow
def test_training_is_the_same_without_measurements(whole, tmp_path):
    """With dropout, crops, averages and accumulated gradients."""
    workdir, model, _ = whole
    plain, history = train(tmp_path / "plain", SHORT)
    assert history == [line for line in lines_of(workdir) if "epoch" in line]
    assert_same_variables(model.variables, plain.variables)


@pytest.mark.slow
def test_measurements_are_lines_between_those_of_the_epochs(whole):
    workdir, _, callback = whole
    first = [(None, 5), (None, 10), (0, None)]
    second = [(None, 15), (None, 20), (None, 25), (1, None), (None, 26)]
    assert places_of(workdir) == first + second
    lines = [line for line in lines_of(workdir) if "step" in line]
    assert lines == callback.rows
    assert lines[0].keys() == {"step", "fewshot_2shot", "fewshot_2shot_std"}
    assert callback.seconds > 0
    settings = {"every": 5, "data": "digits", "shots": [2], "seeds": [0, 1]}
    recorded = json.loads((workdir / "run.json").read_text())["measurements"]
    assert recorded == [{**settings, "classes": list(CLASSES), "upright": False}]


@pytest.mark.slow
def test_the_last_measurement_is_that_of_the_averages(whole):
    workdir, _, callback = whole
    options = {"shots": (2,), "seeds": (0, 1), "classes": CLASSES}
    found = {}
    for name in ("averaged", "last"):
        accuracies = evaluate_fewshot(load_model(workdir / f"{name}.keras"), "digits", **options)
        found[name] = np.mean(list(accuracies.values()))
    assert callback.rows[-1]["fewshot_2shot"] == found["averaged"] != found["last"]


# Within an update, after a measurement, at the start of an epoch, and before the end.
@pytest.mark.slow
@pytest.mark.parametrize(
    "batch", [11, *(pytest.param(batch, marks=pytest.mark.examples) for batch in (21, 27, 51))]
)
def test_a_killed_run_ends_with_the_same_lines(batch, whole, tmp_path, monkeypatch):
    def kill():
        raise ZeroDivisionError

    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(SaveState, "on_train_batch_begin", stopping(batch, kill))
        train(tmp_path / "run", SHORT, callbacks=[fewshot(5)])
    resumed = fewshot(5)
    train(tmp_path / "run", SHORT, callbacks=[resumed])
    expected = (whole[0] / "metrics.jsonl").read_text()
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == expected
    assert resumed.rows == whole[2].rows


@pytest.mark.slow
def test_a_run_that_has_ended_is_not_measured_again(whole, monkeypatch):
    workdir, _, callback = whole
    before = (workdir / "metrics.jsonl").read_text()
    monkeypatch.setattr(FewshotAccuracy, "_measure", None)
    again = fewshot(5)
    train(workdir, SHORT, callbacks=[again])
    assert (workdir / "metrics.jsonl").read_text() == before
    assert again.rows == callback.rows


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the same on every backend")
def test_a_run_that_stops_early_is_measured_at_its_end(tmp_path):
    recipe = small_recipe(loss="mean_color", steps=60, learning_rate=1e-9, patience=1)
    model = small_model(recipe, num_classes=0)
    small_fit(tmp_path / "run", recipe, model, callbacks=[fewshot(100)])
    assert places_of(tmp_path / "run") == [(0, None), (1, None), (None, 2 * 6)]
