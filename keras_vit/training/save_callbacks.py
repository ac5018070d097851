"""Callbacks that save the metrics, the models and the states of a run."""

import json
import logging
import math
import shlex
import signal
import threading

import keras
from keras import ops

from keras_vit.checkpoints.run_files import (
    AVERAGED_MODEL,
    BEST_MODEL,
    LAST_MODEL,
    METRICS_FILE,
    PREDICTOR_MODEL,
)
from keras_vit.core.files import replacing
from keras_vit.models.image_model import ImageModel, copy_attributes, functional
from keras_vit.models.keras_files import check_finite
from keras_vit.models.surgery import copy_model
from keras_vit.training.callbacks import (
    NotFiniteError,
    averaged_weights,
    check_finite_value,
    find_best,
)
from keras_vit.training.distribution import is_spread, to_numpy
from keras_vit.training.optimizers import averages_of, inner_optimizer

# Metrics that depend on the machine; `metrics.jsonl` leaves them out.
SPEED = ("images_per_second", "waiting_for_data")


class SaveModels(keras.callbacks.Callback):
    """Save the metrics of a run, its last model, and its best model by `monitor`.

    If the optimizer computes an EMA of the weights, `best.keras` and `averaged.keras` contain the
    EMA. If the validation loss or the weights are not finite, no model is saved and
    `NotFiniteError` is raised.

    `history` is a list of the metrics of earlier epochs, to which this callback adds each epoch.
    `write` is a function that writes the metrics to a file. `task` is the `Task`, whose `predictor`
    is saved as `predictor.keras`, and whose `finish` changes a copy of the model that is saved.
    """

    def __init__(self, workdir, history, model, write, task, monitor=None):
        super().__init__()
        self.workdir = workdir
        self.history = history
        self.saved_model = model
        self.write = write
        self.class_names = task.metadata.get("class_names")
        self.monitor = monitor
        self.predictor, self.finish = task.predictor, task.finish

    def on_epoch_end(self, epoch, logs=None):
        metrics = {name: float(value) for name, value in logs.items() if name not in SPEED}
        self.history.append({"epoch": epoch, **metrics})
        self.write()
        # On JAX, reading `self.model` writes the trained values to the variables.
        trained = self.model
        check_finite_value("val_loss", logs.get("val_loss", 0.0))
        _check_weights(trained)
        self._save(LAST_MODEL)
        if self.predictor is not None:
            save_model(self.predictor, self.workdir / PREDICTOR_MODEL, self.class_names)
        with averaged_weights(trained):
            if averages_of(trained):
                self._save(AVERAGED_MODEL)
            if find_best(self.history, self.monitor) == len(self.history) - 1:
                self._save(BEST_MODEL)

    def _save(self, name):
        model = self.saved_model
        if self.finish is not None:
            model = copy_model(_on_one_device(model))
            copy_attributes(self.saved_model, model)
            self.finish(model)
        save_model(model, self.workdir / name, self.class_names)


class SaveState(keras.callbacks.Callback):
    """Save the state of a run regularly, and when the process gets a signal to stop.

    Inside a `with`, SIGTERM and SIGINT (Ctrl-C) stop the run after the present batch or evaluation:
    the state is saved; then SIGTERM ends the process with the status 143, and SIGINT raises
    `KeyboardInterrupt`. A second signal stops the process at once.

    If the loss or the gradients are not finite, no state is saved and `NotFiniteError` is raised.

    Args:
        states: the `States` of the run.
        batch: number of batches of the run so far.
        every: number of batches after which a state is saved. A state is also saved after each
            epoch.
        batches_per_epoch: number of batches in an epoch.
        metadata: function that returns the metadata to save with a state.
    """

    def __init__(self, states, batch, every, batches_per_epoch, metadata):
        super().__init__()
        self.states = states
        self.batch = batch
        self.every = every
        self.batches_per_epoch = batches_per_epoch
        self.metadata = metadata
        self._signal = None

    def __enter__(self):
        self._handlers = {}
        # Python handles signals only in the main thread.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers[number] = signal.signal(number, self._ask_to_stop)
        return self

    def __exit__(self, error, *_):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            # A signal may have arrived after the last state was saved.
            self._stop_if_asked()

    def _ask_to_stop(self, number, _):
        self._signal = number
        signal.signal(number, self._handlers[number])

    def on_epoch_begin(self, epoch, logs=None):
        self._first = self.batch

    def on_train_batch_begin(self, batch, logs=None):
        self.batch = self._first + batch
        if batch and (self._signal or self.batch % self.every == 0):
            self._save(float(ops.convert_to_numpy(self.model.get_metrics_result()["loss"])))

    def on_epoch_end(self, epoch, logs=None):
        self.batch = self.batches_per_epoch * (epoch + 1)
        self._save(logs["loss"])

    def _save(self, loss):
        check_finite_value("loss", loss)
        optimizer = inner_optimizer(self.model)
        if hasattr(optimizer, "gradient_norm"):
            norm = float(ops.convert_to_numpy(optimizer.gradient_norm))
            check_finite_value("gradient_norm", norm)
        else:
            # Keras's optimizers do not store the norm.
            _check_weights(self.model)
        self.states.save(self.model, self.batch, self.metadata())
        self._stop_if_asked()

    def _stop_if_asked(self):
        if self._signal is None:
            return
        logging.getLogger("keras_vit").info(
            "stopped after batch %d; to resume: keras-vit resume %s",
            self.batch,
            shlex.quote(str(self.states.directory.parent)),
        )
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt("stopped after a batch")
        raise SystemExit(128 + signal.SIGTERM)


def write_metrics(run, history, rows, steps_per_epoch):
    """Write `metrics.jsonl` of a `RunDir`: a line of JSON per epoch and per measurement.

    `history` has the metrics of the epochs, `rows` the measurements of `MeasureRegularly`. Lines
    are in the order of the steps; at equal steps, the epoch comes before the measurement. Values
    that are not finite are written as `null`.
    """
    epochs = [((metrics["epoch"] + 1) * steps_per_epoch, metrics) for metrics in history]
    measurements = [(row["step"], row) for row in rows]
    lines = [
        json.dumps({k: v if math.isfinite(v) else None for k, v in metrics.items()}) + "\n"
        for _, metrics in sorted([*epochs, *measurements], key=lambda line: line[0])
    ]
    run.write(METRICS_FILE, "".join(lines))


def save_model(model, path, class_names=None):
    """Save a `.keras` file atomically, without the optimizer.

    `class_names` is a list of the class names to store in the file, or `None`.
    """
    with replacing(path) as partial:
        try:
            _without_optimizer(model, class_names).save(partial)
        except RuntimeError as error:
            # h5py raises a `RuntimeError` if the disk is full.
            raise OSError(str(error)) from error


def _without_optimizer(model, class_names):
    model = _on_one_device(model)
    new = functional(model, model.output, trainable=model.trainable)
    copy_attributes(model, new)
    # The outputs of some models, such as a masked patch predictor, are not classes.
    if class_names and isinstance(new, ImageModel) and new.output_shape[-1] == len(class_names):
        new.class_names = class_names
    return new


def _on_one_device(model):
    """Return the model; if it is divided among several processes, a copy on one device."""
    arrays = {
        variable.path: to_numpy(variable) for variable in model.weights if is_spread(variable)
    }
    if not arrays:
        return model
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        copy = type(model).from_config(model.get_config())
        for old, new in zip(model.weights, copy.weights, strict=True):
            new.assign(arrays[old.path] if old.path in arrays else ops.convert_to_numpy(old))
    finally:
        keras.distribution.set_distribution(distribution)
    copy_attributes(model, copy)
    return copy


def _check_weights(model):
    try:
        check_finite(model)
    except ValueError as error:
        raise NotFiniteError(f"{error}; try a smaller `learning_rate`") from error
