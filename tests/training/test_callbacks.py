"""Which models `SaveModels` saves, where the loss is checked, and when a model is measured."""

import threading
import time

import keras
import numpy as np
import pytest

from keras_vit.models.keras_files import load_model
from keras_vit.training.callbacks import (
    CheckFinite,
    LogProgress,
    MeasureRegularly,
    NotFiniteError,
)
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.save_callbacks import SaveModels
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import small_fit, small_model, small_recipe


@pytest.fixture
def callback(tmp_path):
    model = small_model(small_recipe())
    model.compile(make_optimizer(small_recipe(), model, 10))
    callback = SaveModels(tmp_path, [], model, write=lambda: None)
    callback.set_model(model)
    return callback


def test_best_model_is_of_the_best_validation_accuracy(tmp_path, callback):
    scores = [(0.5, 1.0), (0.9, 0.8), (0.9, 0.6), (0.9, 0.7), (0.7, 0.1)]
    for epoch, (accuracy, loss) in enumerate(scores):
        callback.model.get_layer("head").bias.assign([epoch] * 3)
        callback.on_epoch_end(epoch, {"val_accuracy": accuracy, "val_loss": loss})
    assert to_numpy(load_model(tmp_path / "best.keras").get_layer("head").bias.value)[0] == 2
    assert to_numpy(load_model(tmp_path / "last.keras").get_layer("head").bias.value)[0] == 4


def test_weights_that_are_not_finite_are_not_saved(tmp_path, callback):
    callback.on_epoch_end(0, {"loss": 1.0})
    saved = (tmp_path / "last.keras").read_bytes()
    callback.model.get_layer("head").bias.assign([0, 0, np.inf])
    with pytest.raises(NotFiniteError, match="must have finite weights.*head/bias"):
        callback.on_epoch_end(1, {"loss": 1.0})
    assert (tmp_path / "last.keras").read_bytes() == saved


@pytest.mark.backends("jax", "torch", reason="on TensorFlow Keras waits for each batch's loss")
def test_training_does_not_wait_for_the_loss_of_each_batch(tmp_path, monkeypatch):
    """Keras calls the callbacks in a thread only if all of them allow it."""
    threads, check = set(), CheckFinite.on_train_batch_end

    def on_train_batch_end(self, *arguments, **logs):
        threads.add(threading.current_thread())
        check(self, *arguments, **logs)

    monkeypatch.setattr(CheckFinite, "on_train_batch_end", on_train_batch_end)
    small_fit(tmp_path / "run")
    assert threads and threading.main_thread() not in threads


class Counting:
    """What `MeasureRegularly` takes; it measures how often it was called."""

    def __init__(self):
        self.models = []

    def __call__(self, model):
        self.models.append(model)
        calls = iter(range(100))
        return lambda: {"calls": next(calls)}


def fit_plainly(callback, epochs, batches=5, parts=None, **options):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(gradient_accumulation_steps=parts), "mse", **options)
    x, y = np.ones((2 * batches, 2)), np.ones((2 * batches, 1))
    for _ in range(epochs):
        model.fit(x, y, batch_size=2, epochs=2, callbacks=[callback], verbose=0)
    return model


def test_measurements_without_a_run(tmp_path):
    counting = Counting()
    callback = MeasureRegularly(4, counting, log_dir=tmp_path)
    model = fit_plainly(callback, epochs=2)
    # Each `fit` of 10 steps begins where the one before has ended.
    assert [row["step"] for row in callback.rows] == [4, 8, 10, 12, 16, 20]
    assert [row["calls"] for row in callback.rows] == [0, 1, 2, 0, 1, 2]
    assert counting.models == [model, model]
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2


@pytest.mark.backends("tensorflow", "jax", reason="torch has no accumulation of Keras's")
def test_steps_are_updates():
    callback = MeasureRegularly(2, Counting())
    fit_plainly(callback, epochs=2, batches=6, parts=3)
    assert [row["step"] for row in callback.rows] == [2, 4, 6, 8]


@pytest.mark.backends("tensorflow", "jax", reason="torch executes one step at a time")
def test_several_steps_in_one_execution():
    with pytest.raises(ValueError, match="`steps_per_execution` must be 1 .*=2"):
        fit_plainly(MeasureRegularly(2, Counting()), epochs=1, steps_per_execution=2)


def test_a_wrong_number_of_steps():
    with pytest.raises(ValueError, match="`every` must be an integer of at least 1. .*every=0"):
        MeasureRegularly(0, Counting())


def test_a_long_epoch_says_how_far_it_is(caplog, monkeypatch):
    caplog.set_level("INFO", "keras_vit")
    now = iter(range(0, 1000, 25))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    callback = LogProgress(100, 109)
    callback.on_epoch_begin(3)
    for batch in range(9):
        callback.on_train_batch_begin(batch)
    expected = [f"epoch 4: 10{batch} of 109 batches" for batch in (2, 5, 8)]
    assert caplog.messages == expected
