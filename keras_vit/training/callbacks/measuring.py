"""Callbacks that measure and check a run while a model is trained.

A callback with an `on_train_batch_end` would make Keras wait for the loss of every batch, unless it
is `async_safe`: then Keras calls it in a thread, on the backends JAX and torch.
"""

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.training.optimizers import inner_optimizer
from keras_vit.training.recipes.recipe import Recipe


class LogOptimizer(keras.callbacks.Callback):
    """Log the learning rate, and the norm of the last gradients before they are clipped.

    The norm is logged if the optimizer is one of `keras_vit.training.optimizers`. The learning rate
    is that of the next update, as the original and Keras's TensorBoard log it.
    """

    def on_epoch_end(self, epoch, logs=None):
        optimizer = inner_optimizer(self.model)
        for name in ("learning_rate", "gradient_norm"):
            if hasattr(optimizer, name):
                logs[name] = float(ops.convert_to_numpy(getattr(optimizer, name)))


class LogSpeed(keras.callbacks.Callback):
    """Log images per second, and the share of the time spent waiting for data.

    `waited` is a function that returns the seconds spent waiting for data so far, `paused` one that
    returns those in which training was paused.
    """

    def __init__(self, batch_size: int, waited: Callable, paused: Callable = lambda: 0.0) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.waited = waited
        self.paused = paused

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = self._end = None

    def on_train_batch_begin(self, batch, logs=None):
        # In the first batch the step is compiled and prefetching starts.
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
        # Waits until the device has done all batches so far.
        ops.convert_to_numpy(self.model.optimizer.iterations)
        return time.perf_counter() - self.paused(), self.waited()


class LogProgress(keras.callbacks.Callback):
    """Log the progress of an epoch every `seconds`, for output without a progress bar.

    `done` is the number of batches of the epoch before the first one, `total` that of all.
    """

    def __init__(self, done: int, total: int, seconds: float = 60) -> None:
        super().__init__()
        self.done = done
        self.total = total
        self.seconds = seconds

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._last = epoch + 1, time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        now = time.monotonic()
        if now - self._last >= self.seconds:
            self._last = now
            text = "epoch %d: %d of %d batches"
            logging.getLogger("keras_vit").info(text, self._epoch, self.done + batch, self.total)


class NotFiniteError(ValueError):
    """The loss, the gradients or the weights of a run are not finite."""


class CheckFinite(keras.callbacks.Callback):
    """Raise `NotFiniteError` if the loss is not finite; `SaveState` also checks the gradients.

    Args:
        recipe: the recipe of the run.
        states: the `States` of the run.
        batch: number of batches of the run so far.
    """

    async_safe = True

    def __init__(self, recipe: Recipe, states: Any, batch: Any) -> None:
        super().__init__()
        self.recipe = recipe
        self.states = states
        self._first = batch
        self._last = -1

    def on_epoch_begin(self, epoch, logs=None):
        self._first, self._last = self._first + self._last + 1, -1

    def on_train_batch_begin(self, batch, logs=None):
        self._last = batch

    def on_train_batch_end(self, batch, logs=None):
        self.check("loss", logs["loss"], self._first + batch + 1)

    def check(self, name, value, batch):
        """Raise the error if a value that was computed in this batch is not finite."""
        if math.isfinite(value):
            return
        step = math.ceil(batch / self.recipe.accumulation_steps)
        kept = f"; the state before is {str(self.states.last)!r}" if self.states.last else ""
        raise NotFiniteError(
            "Loss and gradients must stay finite; try a smaller `learning_rate`. Received: "
            f"learning_rate={self.recipe.learning_rate}, {name}={value} in step {step}{kept}"
        )
