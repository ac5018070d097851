"""Callbacks for `model.fit`, in a run by recipe or alone: evaluate, log, measure, and stop early.

Keras waits for the loss of every batch if a callback has an `on_train_batch_end`. If the callback
is `async_safe`, Keras calls it in a thread on JAX and torch, and does not wait.
"""

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable

import keras
import numpy as np
import scipy.special
from keras import ops

from keras_vit.core.arguments import check_integer
from keras_vit.core.multi_label import average_precision, best_thresholds
from keras_vit.training.distribution import is_first_process, to_numpy
from keras_vit.training.optimizers import averages_of, inner_optimizer
from keras_vit.training.states import keeping_random_states

__all__ = ["EvaluateAverages", "LogOptimizer", "LogSpeed", "MeasureRegularly", "NotFiniteError"]


@contextlib.contextmanager
def averaged_weights(model):
    """Inside a `with`, let a model have the EMA of its weights, if its optimizer computes an EMA.

    With TensorFlow, `keras.callbacks.SwapEMAWeights` would swap by adding and subtracting, which
    changes the last digits of the weights.
    """
    weights = [to_numpy(v) for v in model.trainable_variables] if averages_of(model) else ()
    assign_averages(model)
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, weights, strict=False):
            variable.assign(value)


def assign_averages(model):
    """Replace the weights of a model by their EMA, if its optimizer computes an EMA."""
    for variable, average in zip(model.trainable_variables, averages_of(model), strict=False):
        # A copy: JAX donates a variable's buffer to the training step.
        variable.assign(to_numpy(average))


class EvaluateAverages(keras.callbacks.Callback):
    """Evaluate the model with the EMA of its weights, if the optimizer computes an EMA."""

    def on_test_begin(self, logs=None):
        self._averaged = contextlib.ExitStack()
        self._averaged.enter_context(averaged_weights(self.model))

    def on_test_end(self, logs=None):
        self._averaged.close()


class LogOptimizer(keras.callbacks.Callback):
    """Log the learning rate, and the norm of the last gradients before they are clipped.

    The norm is logged only for the optimizers of `keras_vit.training.optimizers`, which store it.
    The logged learning rate is the rate of the next update, as in vit_jax and in Keras's
    TensorBoard.
    """

    def on_epoch_end(self, epoch, logs=None):
        optimizer = inner_optimizer(self.model)
        for name in ("learning_rate", "gradient_norm"):
            if hasattr(optimizer, name):
                logs[name] = float(ops.convert_to_numpy(getattr(optimizer, name)))


class LogSpeed(keras.callbacks.Callback):
    """Log images per second, and the share of the time spent waiting for data.

    `waited` is a function that returns the seconds spent waiting for data so far. `paused` is a
    function that returns the seconds in which training was paused.
    """

    def __init__(self, batch_size: int, waited: Callable, paused: Callable = lambda: 0.0) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.waited = waited
        self.paused = paused

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = self._end = None

    def on_train_batch_begin(self, batch, logs=None):
        # Start to measure at the second batch: in the first, the step is compiled and prefetching
        # starts.
        if batch == 1:
            self._begin = self._now()
        self._batches = batch

    def on_test_begin(self, logs=None):
        self._end = self._now()

    def on_epoch_end(self, epoch, logs=None):
        if self._begin:
            end, waited = self._end or self._now()
            seconds = end - self._begin[0]
            logs["images_per_second"] = self._batches * self.batch_size / seconds
            logs["waiting_for_data"] = min((waited - self._begin[1]) / seconds, 1.0)

    def _now(self):
        # Wait until the device has computed all batches so far.
        ops.convert_to_numpy(self.model.optimizer.iterations)
        return time.perf_counter() - self.paused(), self.waited()


class LogProgress(keras.callbacks.Callback):
    """Log the progress of an epoch every `seconds` seconds, for output without a progress bar.

    `total` is the number of batches of an epoch. `first` is how many of them were trained on before
    the run resumed.
    """

    def __init__(self, first: int, total: int, seconds: float = 60) -> None:
        super().__init__()
        self.first = first
        self.total = total
        self.seconds = seconds

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._last = epoch + 1, time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        now = time.monotonic()
        if now - self._last >= self.seconds:
            self._last = now
            text = "epoch %d: %d of %d batches"
            logging.getLogger("keras_vit").info(text, self._epoch, self.first + batch, self.total)


class NotFiniteError(ValueError):
    """The loss, the gradients or the weights of a run are not finite."""


class CheckFinite(keras.callbacks.Callback):
    """Raise `NotFiniteError` if the loss is not finite. `SaveState` checks the gradients."""

    async_safe = True

    def on_train_batch_end(self, batch, logs=None):
        check_finite_value("loss", logs["loss"])


def check_finite_value(name, value):
    """Raise `NotFiniteError` if a value of a run is not finite."""
    if not math.isfinite(value):
        raise NotFiniteError(
            "Losses and gradients must stay finite; try a smaller `learning_rate`. "
            f"Received: {name}={value}"
        )


class StopEarly(keras.callbacks.Callback):
    """Stop a run after some epochs without a better model.

    Keras's `EarlyStopping` counts epochs from the start of the process. This callback counts the
    epochs before the run was resumed too, so that a resumed run stops at the same epoch as an
    uninterrupted run.

    Args:
        history: list of the metrics of the epochs so far. `SaveModels`, which must come before this
            callback, adds each epoch to the list.
        patience: number of epochs without a better model after which training ends.
        monitor: as in `find_best`.
    """

    def __init__(self, history, patience, monitor=None):
        super().__init__()
        self.history = history
        self.patience = patience
        self.monitor = monitor

    def on_epoch_end(self, epoch, logs=None):
        if self.is_over():
            self.model.stop_training = True

    def is_over(self):
        """Return whether `patience` epochs have passed since the best epoch."""
        passed = len(self.history) - 1 - find_best(self.history, self.monitor)
        return bool(self.history) and passed >= self.patience


class StopAfterEpoch(keras.callbacks.Callback):
    """Stop after one epoch. `was_stopped` is true if another callback stopped the training."""

    was_stopped = False

    def on_epoch_end(self, epoch, logs=None):
        self.was_stopped = self.model.stop_training
        self.model.stop_training = True
        optimizer = inner_optimizer(self.model)
        # The run continues after this `fit`. With `use_ema`, Keras's optimizers would replace the
        # weights by their EMA at the end of `fit`.
        self._use_ema, optimizer.use_ema = optimizer.use_ema, False

    def on_train_end(self, logs=None):
        inner_optimizer(self.model).use_ema = self._use_ema


def find_best(history, monitor=None):
    """Return the index of the best epoch, the first of equally good epochs; -1 without epochs.

    Args:
        history: list of dictionaries, the metrics of each epoch.
        monitor: name of the metric that decides; if the name contains `loss`, smaller is better. By
            default the validation accuracy (or mean average precision) decides, and among equal
            accuracies the validation loss. Without validation, the last epoch is the best.

    Example:
    >>> from keras_vit.training.callbacks import find_best
    >>> find_best([{"val_loss": 2.0}, {"val_loss": 1.0}, {"val_loss": 3.0}], "val_loss")
    1
    """
    scores = [_score(index, metrics, monitor) for index, metrics in enumerate(history)]
    return scores.index(max(scores)) if scores else -1


def _score(index, metrics, monitor):
    loss = metrics.get("val_loss", 0.0)
    if not math.isfinite(loss):
        return (-math.inf,)
    if monitor is not None:
        value = -metrics[monitor] if "loss" in monitor else metrics[monitor]
        return (value if math.isfinite(value) else -math.inf,)
    if "val_loss" not in metrics:
        return (index,)
    # A run on masked patches with the loss `pixels` has no accuracy: the validation loss decides.
    quality = metrics.get("val_mean_average_precision", metrics.get("val_accuracy", 0.0))
    return (quality if math.isfinite(quality) else -math.inf, -loss)


class ChooseThresholds(keras.callbacks.Callback):
    """Log `val_mean_average_precision`, and choose the thresholds of a multi-label model.

    Keras's metrics only approximate the precision, so this callback computes the logits of all
    validation images after each epoch. It sets `thresholds` of `model`, which the run saves.
    """

    def __init__(self, validation, model):
        super().__init__()
        self.validation = validation
        self.saved_model = model

    def on_epoch_end(self, epoch, logs=None):
        labels, logits = [], []
        with averaged_weights(self.model):
            for images, rows in self.validation.as_numpy_iterator():
                # Fill the last batch: JAX would compile again for a smaller batch.
                size = len(labels[0]) if labels else len(rows)
                filled = np.resize(images, (size, *images.shape[1:]))
                logits.append(np.asarray(self.model.predict_on_batch(filled))[: len(rows)])
                labels.append(rows)
        labels, logits = np.concatenate(labels), np.concatenate(logits).astype("float64")
        if not labels.any():
            raise ValueError("The validation images must have labels. Received: no labels")
        logs["val_mean_average_precision"] = np.nan
        if np.isfinite(logits).all():
            precision = np.nanmean(average_precision(labels, logits))
            logs["val_mean_average_precision"] = float(precision)
            self.saved_model.thresholds = best_thresholds(labels, scipy.special.expit(logits))


class MeasureRegularly(keras.callbacks.Callback):
    """Measure a model after every `every` updates of its weights, and at the end of training.

    If the optimizer computes an EMA of the weights, the model is measured with the EMA. Weights and
    random states are restored after a measurement, so training has the same results as without this
    callback.

    A run by recipe (`keras_vit.training.train(..., callbacks=[...])`) measures the model that it
    saves, and writes the measurements to `metrics.jsonl` and for TensorBoard. A resumed run keeps
    earlier measurements.

    Args:
        every: number of updates between two measurements.
        prepare: function that is called once with the model, such as a
            `keras_vit.evaluation.FewshotAccuracy`. It returns a function without arguments that
            measures the current model and returns a dictionary of numbers.
        log_dir: directory for TensorBoard; `None` to write nothing. A run by recipe replaces it by
            a directory in the run's directory.

    Attributes:
        rows: list of dictionaries, one per measurement: `step` (the number of updates) and the
            measured numbers.
        seconds: seconds spent on measurements in this process.

    Raises:
        ValueError: if `every` is not a positive integer; or, from `model.fit`, if the model is
            compiled with a `steps_per_execution` other than 1.

    Example:
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=1, num_heads=2, mlp_dim=16, num_classes=3,
    ...     image_size=8)
    >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> fewshot = keras_vit.evaluation.FewshotAccuracy("digits", classes=("7", "8", "9"))
    >>> callback = MeasureRegularly(2, fewshot)
    >>> images, labels = np.zeros((48, 8, 8, 3)), np.arange(48) % 3
    >>> history = model.fit(images, labels, batch_size=16, callbacks=[callback], verbose=0)
    >>> [row["step"] for row in callback.rows]
    [2, 3]
    """

    def __init__(
        self, every: int, prepare: Callable, log_dir: str | os.PathLike | None = None
    ) -> None:
        super().__init__()
        self.every = check_integer("every", every, 1)
        self.prepare = prepare
        self.log_dir = log_dir
        self.rows = []
        self.seconds = 0.0
        self._measure = self._writer = None
        # Set by a run by recipe.
        self._epochs = self._first_batch = self._on_row = None

    @property
    def settings(self):
        """The settings of the measurements, a dictionary that JSON can store."""
        return {"every": self.every, **getattr(self.prepare, "settings", {})}

    def join_run(self, model, epochs, log_dir, rows, on_row):
        """Measure the model of a run, and call `on_row` after each measurement.

        `epochs` is the number of epochs of the run. `rows` are the measurements of the run so far.
        """
        self._prepare(model)
        self._epochs, self.log_dir, self._on_row = epochs, log_dir, on_row
        self.rows[:] = rows

    def begin_at(self, batch):
        """Let the next `model.fit` of a run count batches from `batch`."""
        self._first_batch = batch

    def leave_run(self):
        """Forget the model of a run."""
        self._measure = self._epochs = self._first_batch = self._on_row = None

    def on_train_begin(self, logs=None):
        model = self.model
        if model.steps_per_execution != 1:
            raise ValueError(
                "`steps_per_execution` must be 1 for measurements between steps. "
                f"Received: steps_per_execution={model.steps_per_execution}"
            )
        if self._measure is None:
            self._prepare(model)
        optimizer = inner_optimizer(model)
        # `iterations` counts updates in Keras's optimizers, and batches in `PaperOptimizer`.
        accumulation_steps = getattr(optimizer, "accumulation_steps", None)
        self._batches_per_update = accumulation_steps or optimizer.gradient_accumulation_steps or 1
        self._done = self._first_batch
        if self._done is None:
            iterations = int(ops.convert_to_numpy(optimizer.iterations))
            self._done = iterations * (1 if accumulation_steps else self._batches_per_update)
        self._last_step = self._done // self._batches_per_update

    def on_epoch_begin(self, epoch, logs=None):
        self._before = self._done

    def on_train_batch_begin(self, batch, logs=None):
        self._measure_if_due(self._before + batch)
        self._done = self._before + batch + 1

    def on_epoch_end(self, epoch, logs=None):
        is_last = epoch + 1 == (self._epochs or self.params["epochs"])
        self._measure_if_due(self._done, is_last or self.model.stop_training)

    def on_train_end(self, logs=None):
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._on_row is None:
            self._measure = None

    def _prepare(self, model):
        # `prepare` may compile a part of the model, which draws random numbers.
        with keeping_random_states():
            self._measure = self.prepare(model)

    def _measure_if_due(self, batches, is_end=False):
        step, rest = divmod(batches, self._batches_per_update)
        is_due = is_end or (rest == 0 and step % self.every == 0)
        if not is_due or step <= self._last_step:
            return
        self._last_step = step
        # On JAX, reading `self.model` writes the trained values to the variables.
        model = self.model
        # Wait until the device has computed all batches so far.
        ops.convert_to_numpy(model.optimizer.iterations)
        start = time.perf_counter()
        with keeping_random_states(), averaged_weights(model):
            values = {name: float(value) for name, value in self._measure().items()}
        self.seconds += time.perf_counter() - start
        self.rows.append({"step": step, **values})
        self._record(step, values)

    def _record(self, step, values):
        if is_first_process():
            text = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
            logging.getLogger("keras_vit").info("after %d steps: %s", step, text)
        if self._on_row is not None:
            self._on_row()
        if self.log_dir is None:
            return
        summary = keras.callbacks.TensorBoard().summary
        if self._writer is None:
            self._writer = summary.create_file_writer(str(self.log_dir))
        with self._writer.as_default():
            for name, value in values.items():
                summary.scalar(name, value, step=step)
        self._writer.flush()
