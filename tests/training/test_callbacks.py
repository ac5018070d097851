"""Which models `SaveModels` saves, where the loss is checked, and when a model is measured."""

import keras
import numpy as np
import pytest

from keras_vit.models.keras_files import load_model
from keras_vit.training.callbacks import MeasureRegularly, NotFiniteError
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.save_callbacks import SaveModels
from keras_vit.training.tasks import Task
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import small_model, small_recipe


@pytest.fixture
def callback(tmp_path):
    model = small_model(small_recipe())
    model.compile(make_optimizer(small_recipe(), model, 10))
    task = Task(model, None, None, None, (), {})
    callback = SaveModels(tmp_path, [], model, lambda: None, task)
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


class Counting:
    """What `MeasureRegularly` takes; it measures how often it was called."""

    def __init__(self):
        self.models = []

    def __call__(self, model):
        self.models.append(model)
        calls = iter(range(100))
        return lambda: {"calls": next(calls)}


def fit_twice(callback, batches, parts=None):
    """Go on with a `fit` of two epochs by a second one."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(gradient_accumulation_steps=parts), "mse")
    x, y = np.ones((2 * batches, 2)), np.ones((2 * batches, 1))
    for _ in range(2):
        model.fit(x, y, batch_size=2, epochs=2, callbacks=[callback], verbose=0)
    return model


def test_a_model_is_measured_without_a_run(tmp_path):
    counting = Counting()
    callback = MeasureRegularly(4, counting, log_dir=tmp_path)
    model = fit_twice(callback, batches=5)
    # Each `fit` of 10 steps begins where the one before has ended.
    assert [row["step"] for row in callback.rows] == [4, 8, 10, 12, 16, 20]
    assert [row["calls"] for row in callback.rows] == [0, 1, 2, 0, 1, 2]
    assert counting.models == [model, model]
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2


@pytest.mark.backends("tensorflow", "jax", reason="torch has no accumulation of Keras's")
def test_the_steps_of_measurements_are_updates():
    callback = MeasureRegularly(2, Counting())
    fit_twice(callback, batches=6, parts=3)
    assert [row["step"] for row in callback.rows] == [2, 4, 6, 8]
