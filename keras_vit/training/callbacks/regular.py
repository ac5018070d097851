"""Measurements of a model every few steps of its training."""

import logging
import os
import time
from collections.abc import Callable

import keras
from keras import ops

from keras_vit.core.arguments import check_integer
from keras_vit.training.callbacks.averaging import averaged_weights
from keras_vit.training.distribution import is_first_process
from keras_vit.training.optimizers import inner_optimizer
from keras_vit.training.runs.state import keeping_random_states


class MeasureRegularly(keras.callbacks.Callback):
    """Measure a model after every few updates of its weights, and at the end of training.

    If the optimizer has averages of the weights, they are measured. The results of training are the
    same as without this callback: weights and random states are as before after a measurement.

    A run by recipe (`keras_vit.training.train(..., callbacks=[...])`) measures the model that it
    saves, writes the measurements to `metrics.jsonl` and for TensorBoard, and resumes them.

    Args:
        every: number of updates between two measurements.
        prepare: function that is called with the model once and returns a function without
            arguments, which measures the model as it is at that time and returns a dictionary of
            numbers; such as a `keras_vit.evaluation.FewshotAccuracy`.
        log_dir: directory for events of TensorBoard; `None` for none. A run has its own.

    Attributes:
        rows: list of the measurements so far, dictionaries of `step` (the number of updates) and
            the numbers.
        seconds: time that they have taken in this process.

    Raises:
        ValueError: if `every` is not a positive integer; and in `model.fit`, if
            `steps_per_execution` is not 1.

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
        # Set by a run.
        self._epochs = self._first_batch = self._on_row = None

    @property
    def settings(self):
        """What the measurements depend on besides the model, a dictionary for JSON."""
        return {"every": self.every, **getattr(self.prepare, "settings", {})}

    def join_run(self, model, epochs, log_dir, rows, on_row):
        """Measure the model of a run of so many epochs, and call `on_row` after each measurement.

        `rows` are the measurements of the run so far.
        """
        self._prepare(model)
        self._epochs, self.log_dir, self._on_row = epochs, log_dir, on_row
        self.rows[:] = rows

    def begin_at(self, batch):
        """Count batches from the given one, in the next `model.fit` of a run."""
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
        # Keras counts updates, the optimizers of recipes count batches.
        own = getattr(optimizer, "accumulation_steps", None)
        self._batches_per_update = own or optimizer.gradient_accumulation_steps or 1
        self._done = self._first_batch
        if self._done is None:
            updates = int(ops.convert_to_numpy(optimizer.iterations))
            self._done = updates * (1 if own else self._batches_per_update)
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
        # Making a part of the model that is compiled draws random numbers.
        with keeping_random_states():
            self._measure = self.prepare(model)

    def _measure_if_due(self, batches, is_end=False):
        step, rest = divmod(batches, self._batches_per_update)
        is_due = is_end or (rest == 0 and step % self.every == 0)
        if not is_due or step <= self._last_step:
            return
        self._last_step = step
        # On JAX this access writes the trained values to the variables.
        model = self.model
        # Waits until the device has done all batches so far.
        ops.convert_to_numpy(model.optimizer.iterations)
        start = time.perf_counter()
        with keeping_random_states(), averaged_weights(model):
            found = {name: float(value) for name, value in self._measure().items()}
        self.seconds += time.perf_counter() - start
        self.rows.append({"step": step, **found})
        self._record(step, found)

    def _record(self, step, found):
        if is_first_process():
            shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
            logging.getLogger("keras_vit").info("after %d steps: %s", step, shown)
        if self._on_row is not None:
            self._on_row()
        if self.log_dir is None:
            return
        summary = keras.callbacks.TensorBoard().summary
        if self._writer is None:
            self._writer = summary.create_file_writer(str(self.log_dir))
        with self._writer.as_default():
            for name, value in found.items():
                summary.scalar(name, value, step=step)
        self._writer.flush()
