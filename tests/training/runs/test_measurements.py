"""Runs that are measured regularly: their files, their end, and what stops them."""

import dataclasses
import json
import signal
from functools import partial

import keras
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from keras_vit.evaluation import FewshotAccuracy, evaluate_fewshot
from keras_vit.models.keras_files import load_model
from keras_vit.training.callbacks import MeasureRegularly
from keras_vit.training.save_callbacks import SaveState
from tests.fixtures.contract import to_numpy
from tests.fixtures.run_to_be_killed import RECIPE, small_teacher, train
from tests.fixtures.small_runs import CLASSES, small_fit, small_model, small_recipe
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
    for ours, theirs in zip(model.variables, plain.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(ours.value), to_numpy(theirs.value), ours.path)


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


@pytest.mark.slow
def test_curves(whole):
    workdir, _, callback = whole
    events = EventAccumulator(str(workdir / "tensorboard" / "measured"))
    events.Reload()
    found = [(e.step, make_ndarray(e.tensor_proto)) for e in events.Tensors("fewshot_2shot")]
    assert found == [(row["step"], np.float32(row["fewshot_2shot"])) for row in callback.rows]


# Within an update, after a measurement, at the start of an epoch, and before the end.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "is_asked"),
    [
        (11, False),
        pytest.param(21, True, marks=pytest.mark.examples),
        pytest.param(21, False, marks=pytest.mark.examples),
        pytest.param(27, True, marks=pytest.mark.examples),
        pytest.param(51, False, marks=pytest.mark.examples),
    ],
)
def test_a_stopped_run_ends_with_the_same_lines(batch, is_asked, whole, tmp_path, monkeypatch):
    def kill():
        raise ZeroDivisionError

    stop = partial(signal.raise_signal, signal.SIGTERM) if is_asked else kill
    with monkeypatch.context() as patched:
        patched.setattr(SaveState, "on_train_batch_begin", stopping(batch, stop))
        with pytest.raises(SystemExit if is_asked else ZeroDivisionError):
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
@pytest.mark.parametrize("callbacks", [[], [fewshot(6)], [fewshot(5), fewshot(5)]])
def test_other_measurements_are_another_run(callbacks, whole):
    with pytest.raises(ValueError, match="settings it was begun with. Received: measurements="):
        train(whole[0], SHORT, callbacks=callbacks)


@pytest.mark.examples
def test_a_student_and_several_callbacks(tmp_path):
    callbacks = [fewshot(13), MeasureRegularly(26, lambda model: lambda: {"one": 1, "nan": np.nan})]
    train(tmp_path / "run", SHORT, callbacks=callbacks, teacher=small_teacher())
    expected = [(0, None), (None, 13), (1, None), (None, 26), (None, 26)]
    assert places_of(tmp_path / "run") == expected
    assert lines_of(tmp_path / "run")[-1] == {"step": 26, "one": 1.0, "nan": None}
    student = load_model(tmp_path / "run" / "averaged.keras")
    options = {"shots": (2,), "seeds": (0, 1), "classes": CLASSES}
    accuracies = evaluate_fewshot(student, "digits", **options)
    assert callbacks[0].rows[-1]["fewshot_2shot"] == np.mean(list(accuracies.values()))
    directories = {path.name for path in (tmp_path / "run" / "tensorboard").iterdir()}
    assert directories == {"train", "validation", "measured", "measured_1"}


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the same on every backend")
def test_masked_patches_and_a_run_that_stops_early(tmp_path):
    recipe = small_recipe(loss="mean_color", steps=60, learning_rate=1e-9, patience=1)
    callback = fewshot(100)
    model = small_model(recipe, num_classes=0)
    history = small_fit(tmp_path / "run", recipe, model, callbacks=[callback])
    assert len(history) == 2
    assert places_of(tmp_path / "run") == [(0, None), (1, None), (None, 2 * 6)]
    accuracies = evaluate_fewshot(
        load_model(tmp_path / "run" / "last.keras"), "digits", shots=(2,), classes=CLASSES
    )
    found = [accuracies[2, seed] for seed in (0, 1)]
    assert callback.rows == [
        {"step": 12, "fewshot_2shot": np.mean(found), "fewshot_2shot_std": np.std(found, ddof=1)}
    ]


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the same on every backend")
def test_float16_counts_steps_whose_gradients_overflow(tmp_path):
    recipe = small_recipe(steps=6)
    model = small_model(recipe, dtype="mixed_float16")
    # A first scale of 2**15 may be too large; the optimizer then skips the update.
    small_fit(tmp_path / "run", recipe, model, callbacks=[fewshot(4)])
    assert [line["step"] for line in lines_of(tmp_path / "run") if "step" in line] == [4, 6]


@pytest.mark.slow
def test_the_model_of_a_run_is_forgotten(whole):
    assert whole[2]._measure is None


@pytest.mark.slow
def test_other_callbacks_of_keras(tmp_path):
    epochs = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    small_fit(tmp_path / "run", callbacks=[callback])
    assert epochs == [0, 1]
