"""`model.fit` that resumes where it was stopped, also mid-epoch."""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import sys

import keras

from keras_vit.data.skipped import explaining_errors
from keras_vit.data.timing import TimedDataset
from keras_vit.training.callbacks.averaging import EvaluateAverages
from keras_vit.training.callbacks.measuring import (
    CheckFinite,
    LogOptimizer,
    LogProgress,
    LogSpeed,
)
from keras_vit.training.callbacks.regular import MeasureRegularly
from keras_vit.training.callbacks.saving import SaveModels, SaveState, write_metrics
from keras_vit.training.callbacks.stopping import StopAfterEpoch, StopEarly
from keras_vit.training.distribution import is_first_process
from keras_vit.training.recipes import Recipe
from keras_vit.training.runs.run import TENSORBOARD
from keras_vit.training.runs.state import (
    RestoreMetrics,
    RestoreRandomStates,
    States,
    random_states,
    restore,
)
from keras_vit.training.runs.thresholds import ChooseThresholds, measures_precision
from keras_vit.training.training_data import for_evaluation

# Directory of TensorBoard's for what `MeasureRegularly` measures.
MEASURED = "measured"


@dataclasses.dataclass
class ResumableFit:
    """The epochs of a run, from its start or from a state.

    `record` is the `run.json`. The states contain the model's `options`, and the measurements of
    those `callbacks` that are `MeasureRegularly`.
    """

    recipe: Recipe
    workdir: pathlib.Path
    epochs: int
    batches_per_epoch: int
    save_steps: int
    states: States
    record: dict
    options: dict | None
    callbacks: tuple = ()
    verbose: int | str = "auto"
    history: list = dataclasses.field(default_factory=list)
    train: object = None

    def fit(self, task, model, state=None):
        """Train the compiled model of a `Task`, whose weights are those of the model to save."""
        with contextlib.ExitStack() as stack:
            for callback in self._measuring():
                stack.callback(callback.leave_run)
            self._join_measurements(model, state)
            self._fit_from(task, model, state)

    def _fit_from(self, task, model, state):
        batch, skip, callbacks = self._restore(task.model, state)
        if state is not None and state[1].get("thresholds"):
            model.thresholds = state[1]["thresholds"]
        epoch, done = divmod(batch, self.batches_per_epoch)
        self.train = task.train if batch == 0 else task.train.from_step(batch, skip)
        is_over = any(stop.is_over() for stop in self._stopping())
        if done:
            # The rest of the epoch in which the run was stopped.
            rest = StopAfterEpoch()
            self._fit(task, model, batch, callbacks, [rest])
            is_over = rest.was_stopped
            epoch, callbacks = epoch + 1, [RestoreRandomStates(random_states())]
            batch = epoch * self.batches_per_epoch
            self.train = task.train.from_step(batch, self.train.skipped.reasons)
        if epoch < self.epochs and not is_over:
            self._fit(task, model, batch, callbacks)

    def _restore(self, model, state):
        """Return the batch to resume after, the images skipped so far, and callbacks."""
        if state is None:
            return 0, [], []
        arrays, facts = state
        self.history = facts["history"]
        self._write_metrics()
        is_over = facts["batch"] == self.epochs * self.batches_per_epoch
        text = "the run ended after batch %d" if is_over else "resuming after batch %d"
        logging.getLogger("keras_vit").info(text, facts["batch"])
        metrics = restore(model, arrays)
        callbacks = [RestoreRandomStates(arrays)]
        if facts["batch"] % self.batches_per_epoch:
            callbacks.append(RestoreMetrics(metrics))
        return facts["batch"], facts["skipped"], callbacks

    def _measuring(self):
        return [callback for callback in self.callbacks if isinstance(callback, MeasureRegularly)]

    def _join_measurements(self, model, state):
        """Give the callbacks that measure the model, and what they have measured so far."""
        measuring = self._measuring()
        found = state[1]["measurements"] if state and measuring else [[]] * len(measuring)
        for number, (callback, rows) in enumerate(zip(measuring, found, strict=True)):
            # TensorBoard reads one file at a time in each directory.
            name = f"{MEASURED}_{number}" if number else MEASURED
            log_dir = self.workdir / TENSORBOARD / name
            callback.join_run(model, self.epochs, log_dir, rows, self._write_metrics)

    def _write_metrics(self):
        rows = [row for callback in self._measuring() for row in callback.rows]
        steps_per_epoch = self.batches_per_epoch // self.recipe.accumulation_steps
        write_metrics(self.workdir, self.history, rows, steps_per_epoch)

    def _fit(self, task, model, batch, callbacks, last_callbacks=()):
        timed = TimedDataset(self.train)
        batch_size = self.recipe.batch_size // self.recipe.accumulation_steps
        verbose = self.verbose
        if verbose == "auto":
            # In a log file, a progress bar would be thousands of lines.
            verbose = 1 if sys.stdout.isatty() else 2
        tensorboard = keras.callbacks.TensorBoard(self.workdir / TENSORBOARD, write_graph=False)
        progress = keras.callbacks.ProgbarLogger()
        # The first writes after epochs only; Keras calls a `ProgbarLogger` of its own in a thread.
        tensorboard.async_safe = progress.async_safe = True
        check = CheckFinite(self.recipe, self.states, batch)
        told = [LogProgress(batch % self.batches_per_epoch, self.batches_per_epoch)]
        is_measured, measuring = measures_precision(self.recipe, task, model), self._measuring()
        for callback in measuring:
            callback.begin_at(batch)
        callbacks = [
            *callbacks,
            check,
            EvaluateAverages(),
            *([ChooseThresholds(task.validation, model)] if is_measured else []),
            # Its lines have the metrics, and not what the callbacks after it add for the curves.
            progress,
            *(told if verbose == 2 and is_first_process() else []),
            LogOptimizer(),
            LogSpeed(batch_size, timed.seconds, lambda: sum(c.seconds for c in measuring)),
            tensorboard,
            SaveModels(
                *(self.workdir, self.history, model, self.record.get("class_names")),
                *(self.recipe.monitor, task.predictor, self._write_metrics),
            ),
            *self._stopping(),
            # They know whether the run stops, and the state that is saved next has their results.
            *self.callbacks,
            # For those before them, this stop is not the end of the run.
            *last_callbacks,
        ]
        saving = SaveState(
            self.states,
            batch,
            self.save_steps,
            self.batches_per_epoch,
            check,
            functools.partial(self._facts, model),
        )
        datasets = [d for d in (self.train, task.validation) if d is not None]
        with explaining_errors(*datasets), saving:
            task.model.fit(
                timed.dataset,
                validation_data=for_evaluation(task.validation, batch_size),
                initial_epoch=batch // self.batches_per_epoch,
                epochs=self.epochs,
                steps_per_epoch=self.batches_per_epoch - batch % self.batches_per_epoch,
                callbacks=[*callbacks, saving],
                class_weight=task.class_weights,
                # The dataset shuffles itself.
                shuffle=False,
                verbose=verbose,
            )

    def _stopping(self):
        if self.recipe.patience is None:
            return []
        return [StopEarly(self.history, self.recipe.patience, self.recipe.monitor)]

    def _facts(self, model):
        return {
            "history": self.history,
            "skipped": self.train.skipped.reasons,
            "run": self.record["id"],
            "options": self.options,
            "thresholds": getattr(model, "thresholds", None),
            "measurements": [callback.rows for callback in self._measuring()],
        }
