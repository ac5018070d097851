"""Open the directory of a training run, and call `model.fit` to begin or resume the run."""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import sys
import tempfile

import keras

from keras_vit.checkpoints.run_files import RUN_FILE
from keras_vit.core.run_dir import RunDir
from keras_vit.data.dataset import TimedDataset
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.processes import count_images, pad, process, sum_over_processes
from keras_vit.training.callbacks import (
    CheckFinite,
    ChooseThresholds,
    EvaluateAverages,
    LogOptimizer,
    LogProgress,
    LogSpeed,
    MeasureRegularly,
    StopAfterEpoch,
    StopEarly,
)
from keras_vit.training.distribution import is_first_process, num_replicas
from keras_vit.training.save_callbacks import METRICS_FILE, SaveModels, SaveState, write_metrics
from keras_vit.training.states import (
    RestoreMetrics,
    RestoreRandomStates,
    States,
    random_states,
    restore,
)
from keras_vit.training.tasks import Task

SKIPPED_FILE = "skipped.txt"
# Copy of the file that the argument `exclude` names, with the ids of excluded examples.
EXCLUDED_FILE = "excluded.txt"
STATES = "states"
TENSORBOARD = "tensorboard"
# Directory for TensorBoard with the measurements of `MeasureRegularly`.
MEASURED = "measured"
# Settings that may differ when a run is resumed: paths of files (digests of the contents are
# compared instead), settings that depend on the machine, and an entry that is written at the end.
MAY_DIFFER = (
    *("data", "exclude", "data_dir", "cache", "max_skipped", "save_steps", "keep", "strategy"),
    *("model_shards", "objects", "keras", "backend", "has_ended"),
)
SCRATCH = (METRICS_FILE, TENSORBOARD, EXCLUDED_FILE)


@contextlib.contextmanager
def open_run(workdir, settings, may_differ=(), resume=False):
    """Open the `RunDir` of a run; in other processes than the first, a temporary `RunDir`.

    `may_differ` has names of settings that may differ, in addition to `MAY_DIFFER`.
    """
    with contextlib.ExitStack() as stack:
        if not is_first_process():
            temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            workdir, resume = stack.enter_context(temporary), False
        backend = keras.backend.backend()
        settings = {**settings, "keras": keras.__version__, "backend": backend}
        options = {"file": RUN_FILE, "may_differ": (*MAY_DIFFER, *may_differ), "scratch": SCRATCH}
        run = stack.enter_context(RunDir(workdir, settings, resume, **options).open())
        begun_on = run.recorded.get("backend", backend)
        if begun_on != backend:
            logging.getLogger("keras_vit").warning(
                "the run began on %s and resumes on %s: random numbers and results will differ",
                begun_on,
                backend,
            )
        yield run


def find_state(workdir, identity):
    """Return the last state of a run, as `States.load` does; `None` if no state was saved."""
    workdir = pathlib.Path(workdir).expanduser()
    state, metrics = States(workdir / STATES).load(), workdir / METRICS_FILE
    # Metrics are written before the state. A run that stopped in between may have the metrics of
    # one epoch (number 0) and no state.
    if state is None and metrics.exists() and '"epoch": 1,' in metrics.read_text(encoding="utf-8"):
        raise ValueError(
            "`workdir` must have the states of a run to be resumed. Received: workdir="
            f"{str(workdir)!r}, which has the metrics of several epochs and no states"
        )
    # Only the first process computes digests of the images, so only its identity can be compared.
    if is_first_process() and state is not None and state[1]["run"] != identity:
        raise ValueError(
            "`workdir` must have the states of its own run. "
            f"Received: workdir={str(workdir)!r}, with the states of another run"
        )
    return state


def for_evaluation(batches, batch_size):
    """Pad the last batch, so that it can be divided among all replicas.

    Padding has the weight 0. `batch_size` is the number of images in the batches of all processes
    together.
    """
    # TensorFlow's strategies can divide a smaller batch.
    if batches is None or keras.backend.backend() != "jax" or num_replicas() == 1:
        return batches
    num_batches = -(-batches.info.dataset.num_examples // batch_size)
    # Keras divides the loss by the number of images with padding, so give the other images a larger
    # weight. They must be counted, because some images may not be decodable.
    weight = num_batches * batch_size / sum_over_processes(count_images(batches))
    return pad(batches, batch_size // process()[1], num_batches, weight)


@dataclasses.dataclass
class ResumableFit:
    """Train a run from its start or from a state.

    The model of `task` is compiled. It shares its weights with `model`, which is saved. The states
    contain the measurements of each `MeasureRegularly` in `callbacks`.
    """

    recipe: object
    task: Task
    model: keras.Model
    run: RunDir
    epochs: int
    batches_per_epoch: int
    states: States
    save_steps: int = 1000
    callbacks: tuple = ()
    verbose: int | str = "auto"
    history: list = dataclasses.field(default_factory=list)
    train: object = None

    def __post_init__(self):
        validation = self.task.validation
        self.validation = None if validation is None else validation.batches()
        self.batch_size = self.recipe.batch_size // self.recipe.accumulation_steps

    @functools.cached_property
    def evaluated(self):
        """The validation batches, padded so that each replica gets the same number of images."""
        datasets = [] if self.validation is None else [self.validation]
        with explaining_errors(*datasets):
            return for_evaluation(self.validation, self.batch_size)

    def fit(self, state=None):
        """Train to the end, from a state or from the start."""
        with contextlib.ExitStack() as stack:
            for callback in self._measuring():
                stack.callback(callback.leave_run)
            self._join_measurements(state)
            self._fit_from(state)

    def _fit_from(self, state):
        batch, skip, callbacks = self._restore(state)
        epoch, done = divmod(batch, self.batches_per_epoch)
        self.train = self.task.train.from_step(batch, skip).batches()
        is_over = any(stop.is_over() for stop in self._stopping())
        if done:
            # Train the rest of the epoch in which the run was stopped.
            rest = StopAfterEpoch()
            self._fit(batch, callbacks, [rest])
            is_over = rest.was_stopped
            epoch, callbacks = epoch + 1, [RestoreRandomStates(random_states())]
            batch = epoch * self.batches_per_epoch
            skip = self.train.info.skipped.reasons
            self.train = self.task.train.from_step(batch, skip).batches()
        if epoch < self.epochs and not is_over:
            self._fit(batch, callbacks)

    def _restore(self, state):
        """Restore a state, if there is one.

        Return the number of batches so far, the images skipped so far, and callbacks to add.
        """
        if state is None:
            return 0, [], []
        arrays, metadata = state
        self.history = metadata["history"]
        self._write_metrics()
        is_over = metadata["batch"] == self.epochs * self.batches_per_epoch
        text = "the run ended after batch %d" if is_over else "resuming after batch %d"
        logging.getLogger("keras_vit").info(text, metadata["batch"])
        metrics = restore(self.task.model, arrays)
        if metadata["thresholds"]:
            self.model.thresholds = metadata["thresholds"]
        callbacks = [RestoreRandomStates(arrays)]
        if metadata["batch"] % self.batches_per_epoch:
            callbacks.append(RestoreMetrics(metrics))
        return metadata["batch"], metadata["skipped"], callbacks

    def _measuring(self):
        return [callback for callback in self.callbacks if isinstance(callback, MeasureRegularly)]

    def _join_measurements(self, state):
        """Pass the model and the measurements in the state to each `MeasureRegularly`."""
        measuring = self._measuring()
        earlier = state[1]["measurements"] if state and measuring else [[]] * len(measuring)
        for number, (callback, rows) in enumerate(zip(measuring, earlier, strict=True)):
            # Each callback needs its own directory: TensorBoard reads one file at a time in each.
            name = f"{MEASURED}_{number}" if number else MEASURED
            log_dir = self.run.path / TENSORBOARD / name
            callback.join_run(self.model, self.epochs, log_dir, rows, self._write_metrics)

    def _write_metrics(self):
        rows = [row for callback in self._measuring() for row in callback.rows]
        steps_per_epoch = self.batches_per_epoch // self.recipe.accumulation_steps
        write_metrics(self.run, self.history, rows, steps_per_epoch)

    def _fit(self, batch, callbacks, last_callbacks=()):
        task, measuring = self.task, self._measuring()
        timed = TimedDataset(self.train)
        verbose = self.verbose
        if verbose == "auto":
            # Without a terminal, a progress bar would write thousands of lines.
            verbose = 1 if sys.stdout.isatty() else 2
        tensorboard = keras.callbacks.TensorBoard(self.run.path / TENSORBOARD, write_graph=False)
        progress = keras.callbacks.ProgbarLogger()
        # Keras may call both in a thread: TensorBoard writes only after epochs, and Keras calls its
        # own `ProgbarLogger` in a thread too.
        tensorboard.async_safe = progress.async_safe = True
        log_progress = LogProgress(batch % self.batches_per_epoch, self.batches_per_epoch)
        for callback in measuring:
            callback.begin_at(batch)
        callbacks = [
            *callbacks,
            CheckFinite(),
            EvaluateAverages(),
            *([ChooseThresholds(self.validation, self.model)] if task.measures_precision else []),
            # Before the callbacks that add values to `logs`, because it shows all values of `logs`.
            progress,
            *([log_progress] if verbose == 2 and is_first_process() else []),
            LogOptimizer(),
            LogSpeed(self.batch_size, timed.seconds, lambda: sum(c.seconds for c in measuring)),
            tensorboard,
            SaveModels(
                self.run.path,
                self.history,
                self.model,
                self._write_metrics,
                task,
                monitor=self.recipe.monitor,
            ),
            *self._stopping(),
            # `MeasureRegularly` comes after `StopEarly`, to see that an epoch is the last, and
            # before `SaveState`, which saves the measurements.
            *self.callbacks,
            # `StopAfterEpoch` comes after them: when it stops `fit`, the run continues.
            *last_callbacks,
        ]
        saving = SaveState(
            self.states, batch, self.save_steps, self.batches_per_epoch, self._metadata
        )
        datasets = [batches for batches in (self.train, self.validation) if batches is not None]
        with explaining_errors(*datasets), saving:
            task.model.fit(
                timed.dataset,
                validation_data=self.evaluated,
                initial_epoch=batch // self.batches_per_epoch,
                epochs=self.epochs,
                steps_per_epoch=self.batches_per_epoch - batch % self.batches_per_epoch,
                callbacks=[*callbacks, saving],
                class_weight=task.class_weights,
                # The dataset is shuffled already.
                shuffle=False,
                verbose=verbose,
            )

    def _stopping(self):
        if self.recipe.patience is None:
            return []
        return [StopEarly(self.history, self.recipe.patience, self.recipe.monitor)]

    def _metadata(self):
        return {
            "history": self.history,
            "skipped": self.train.info.skipped.reasons,
            "run": self.run.settings["id"],
            "thresholds": getattr(self.model, "thresholds", None),
            "measurements": [callback.rows for callback in self._measuring()],
        }
