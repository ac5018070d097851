"""Callbacks that save the models and the states of a run."""

import functools
import json
import logging
import math
import os
import shlex
import signal
import threading
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.checkpoints.runs import (
    AVERAGED_MODEL,
    BEST_MODEL,
    LAST_MODEL,
    PREDICTOR_MODEL,
)
from keras_vit.models.files import check_finite
from keras_vit.training.callbacks.averaging import averaged_weights
from keras_vit.training.callbacks.measuring import NotFiniteError
from keras_vit.training.callbacks.stopping import find_best
from keras_vit.training.optimizers import inner_optimizer
from keras_vit.training.runs.run import METRICS_FILE, write_text
from keras_vit.training.runs.saved_models import save_model

# Metrics that depend on the machine; `metrics.jsonl` leaves them out.
SPEED = ("images_per_second", "waiting_for_data")


class SaveModels(keras.callbacks.Callback):
    """Save the metrics of a run, its last model, and its best model by `monitor`.

    If the optimizer has averages of the weights, the best model and `averaged.keras` contain them.
    No model is saved after an epoch whose validation loss or weights are not finite. If this is the
    last epoch, `NotFiniteError` is raised unless the weights are finite and there is a model.

    `history` is a list of the metrics of earlier epochs, and grows. `predictor` is another model
    that shares the weights of `model` and is saved as `predictor.keras`, or `None`. `write` is a
    function that writes the metrics; by default it writes those of the epochs alone.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        history: list,
        model: keras.Model,
        class_names: list | None = None,
        monitor: str | None = None,
        predictor: Any = None,
        write: Callable | None = None,
    ) -> None:
        super().__init__()
        self.write = write or functools.partial(write_metrics, workdir, history)
        self.class_names = class_names
        self.monitor = monitor
        self.predictor = predictor
        self.workdir = workdir
        self.history = history
        self.saved = model
        self._problem = None

    def on_epoch_end(self, epoch, logs=None):
        metrics = {name: float(value) for name, value in logs.items() if name not in SPEED}
        self.history.append({"epoch": epoch, **metrics})
        self.write()
        # On JAX this access writes the trained values to the variables.
        trained = self.model
        self._problem = _find_problem(trained, logs)
        if self._problem:
            logging.getLogger("keras_vit").warning(
                "no model is saved after epoch %d: %s", epoch + 1, self._problem
            )
            return
        save_model(self.saved, self.workdir / LAST_MODEL, self.class_names)
        if self.predictor is not None:
            save_model(self.predictor, self.workdir / PREDICTOR_MODEL, self.class_names)
        with averaged_weights(trained):
            if getattr(inner_optimizer(trained), "averages", None) is not None:
                save_model(self.saved, self.workdir / AVERAGED_MODEL, self.class_names)
            if find_best(self.history, self.monitor) == len(self.history) - 1:
                save_model(self.saved, self.workdir / BEST_MODEL, self.class_names)

    def on_train_end(self, logs=None):
        if self._problem is None:
            return
        if not (self.workdir / LAST_MODEL).exists() or not _has_finite_weights(self.model):
            raise NotFiniteError(
                "A run must end with finite weights and a model; try a smaller `learning_rate`. "
                f"Received: {self._problem} after epoch {self.history[-1]['epoch'] + 1}"
            )


class SaveState(keras.callbacks.Callback):
    """Save the state of a run regularly, and when the process is asked to stop.

    Inside a `with`, SIGTERM and SIGINT (Ctrl-C) are handled: the state is saved after the batch, or
    after the evaluation, and the process exits with the usual status of 143, or as after any
    Ctrl-C. A second signal stops the process at once.

    No state is saved if the loss or the gradients are not finite: `NotFiniteError` is raised.

    Args:
        states: the `States` of the run.
        batch: number of batches of the run so far.
        every: number of batches between two saved states; each epoch ends with one too.
        batches_per_epoch: number of batches in an epoch.
        check: the `CheckFinite` of the run.
        facts: function that returns what else to save.
    """

    def __init__(
        self,
        states: Any,
        batch: Any,
        every: int,
        batches_per_epoch: int,
        check: Callable,
        facts: dict,
    ) -> None:
        super().__init__()
        self.states = states
        self.batch = batch
        self.every = every
        self.batches_per_epoch = batches_per_epoch
        self.check = check
        self.facts = facts
        self._asked_by = None

    def __enter__(self):
        self._before = {}
        # Python handles signals only in the main thread.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._ask_to_stop)
        return self

    def __exit__(self, error, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if error is None:
            # A signal came after the last state.
            self._stop_if_asked()

    def _ask_to_stop(self, number, _):
        self._asked_by = number
        signal.signal(number, self._before[number])

    def on_epoch_begin(self, epoch, logs=None):
        self._first = self.batch

    def on_train_batch_begin(self, batch, logs=None):
        self.batch = self._first + batch
        if batch and (self._asked_by or self.batch % self.every == 0):
            self._save(float(ops.convert_to_numpy(self.model.get_metrics_result()["loss"])))

    def on_epoch_end(self, epoch, logs=None):
        self.batch = self.batches_per_epoch * (epoch + 1)
        self._save(logs["loss"])

    def _save(self, loss):
        norm = float(ops.convert_to_numpy(inner_optimizer(self.model).gradient_norm))
        self.check.check("loss", loss, self.batch)
        self.check.check("gradient_norm", norm, self.batch)
        self.states.save(self.model, self.batch, self.facts())
        self._stop_if_asked()

    def _stop_if_asked(self):
        if self._asked_by is None:
            return
        logging.getLogger("keras_vit").info(
            "stopped after batch %d; to go on: keras-vit train --resume --workdir %s",
            self.batch,
            shlex.quote(str(self.states.directory.parent)),
        )
        if self._asked_by == signal.SIGINT:
            raise KeyboardInterrupt("stopped after a batch")
        raise SystemExit(128 + signal.SIGTERM)


def write_metrics(workdir, history, rows=(), steps_per_epoch=1):
    """Write metrics in the order of the steps, one line of JSON each; `null` if not finite.

    `history` has the metrics of the epochs, `rows` the measurements of `MeasureRegularly`, which
    come after an epoch that ends with the same step.
    """
    epochs = [((metrics["epoch"] + 1) * steps_per_epoch, metrics) for metrics in history]
    measured = [(row["step"], row) for row in rows]
    lines = [
        json.dumps({k: v if math.isfinite(v) else None for k, v in metrics.items()}) + "\n"
        for _, metrics in sorted([*epochs, *measured], key=lambda line: line[0])
    ]
    write_text(workdir / METRICS_FILE, "".join(lines))


def _find_problem(model, logs):
    """Return why a model cannot be saved after an epoch, or `None`."""
    loss = logs.get("val_loss", 0.0)
    if not math.isfinite(loss):
        return f"a validation loss of {loss}"
    return None if _has_finite_weights(model) else "weights that are not finite"


def _has_finite_weights(model):
    try:
        check_finite(model)
    except ValueError:
        return False
    return True
