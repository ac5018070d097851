"""`model.fit` that resumes where it was stopped, also mid-epoch."""

import logging
import sys

import keras

from keras_vit.data.skipped import explaining_errors
from keras_vit.data.timing import TimedDataset
from keras_vit.training.averaging import EvaluateAverages
from keras_vit.training.callbacks import (
    LogOptimizer,
    LogSpeed,
    SaveModels,
    SaveState,
    StopIfNotFinite,
    write_metrics,
)
from keras_vit.training.runs.run import STATES, TENSORBOARD
from keras_vit.training.runs.state import (
    RestoreMetrics,
    RestoreRandomStates,
    States,
    random_states,
    restore,
)
from keras_vit.training.training_data import for_evaluation


class ResumableFit:
    """The epochs of a run, from its start or from a state.

    Args:
        recipe: the `Recipe`.
        workdir: the run's directory.
        epochs: number of epochs.
        updates_per_epoch: number of updates of the weights in an epoch.
        save_steps: number of batches between two saved states; each epoch ends with one too.
        keep: number of states to keep.
        metadata: as in `save_model`.

    Attributes:
        images: the digests of `record_images`, to save in the states.
        options: the options of the model, to save in the states.
    """

    def __init__(self, recipe, workdir, epochs, updates_per_epoch, save_steps, keep, metadata):
        self.recipe = recipe
        self.workdir = workdir
        self.epochs = epochs
        self.batches_per_epoch = updates_per_epoch * recipe.accumulation_steps
        self.save_steps = save_steps
        self.states = States(workdir / STATES, keep)
        self.metadata = metadata
        self.history = []
        self.train = None
        self.images = None
        self.options = None

    def fit(self, task, model, state=None):
        """Train from a state, or from the start.

        Args:
            task: a `Task`; its model is compiled and its optimizer built.
            model: the model to save, which shares its weights with the task's.
            state: what `States.load` returned, or `None`.
        """
        batch, skip, callbacks = self._restore(task.model, state)
        epoch, done = divmod(batch, self.batches_per_epoch)
        self.train = task.train if batch == 0 else task.train.from_step(batch, skip)
        if done:
            # The rest of the epoch in which the run was stopped.
            self._fit(task, model, batch, epoch + 1, callbacks)
            epoch, callbacks = epoch + 1, [RestoreRandomStates(random_states())]
            batch = epoch * self.batches_per_epoch
            self.train = task.train.from_step(batch, self.train.skipped.ids)
        if epoch < self.epochs:
            self._fit(task, model, batch, self.epochs, callbacks)

    def _restore(self, model, state):
        """Return the batch to resume after, the images skipped so far, and callbacks."""
        if state is None:
            return 0, [], []
        arrays, facts = state
        self.history = facts["history"]
        write_metrics(self.workdir, self.history)
        logging.getLogger("keras_vit").info("resuming after batch %d", facts["batch"])
        metrics = restore(model, arrays)
        callbacks = [RestoreRandomStates(arrays)]
        if facts["batch"] % self.batches_per_epoch:
            callbacks.append(RestoreMetrics(metrics))
        return facts["batch"], facts["skipped"], callbacks

    def _fit(self, task, model, batch, epochs, callbacks):
        timed = TimedDataset(self.train)
        batch_size = self.recipe.batch_size // self.recipe.accumulation_steps
        stopping = StopIfNotFinite(self.recipe, self.states)
        callbacks = [
            *callbacks,
            LogOptimizer(),
            LogSpeed(batch_size, timed.seconds),
            EvaluateAverages(),
            stopping,
            keras.callbacks.TensorBoard(self.workdir / TENSORBOARD, write_graph=False),
            SaveModels(self.workdir, self.history, model, self.metadata),
        ]
        saving = SaveState(
            self.states,
            batch,
            self.save_steps,
            self.batches_per_epoch,
            stopping.check,
            self._facts,
        )
        datasets = [d for d in (self.train, task.validation) if d is not None]
        with explaining_errors(*datasets), saving:
            task.model.fit(
                timed.dataset,
                validation_data=for_evaluation(task.validation, batch_size),
                initial_epoch=batch // self.batches_per_epoch,
                epochs=epochs,
                steps_per_epoch=self.batches_per_epoch - batch % self.batches_per_epoch,
                callbacks=[*callbacks, saving],
                # The dataset shuffles itself.
                shuffle=False,
                # In a log file, a progress bar would be thousands of lines.
                verbose="auto" if sys.stdout.isatty() else 2,
            )

    def _facts(self):
        return {
            "history": self.history,
            "skipped": self.train.skipped.ids,
            "run": self.metadata["run"],
            "images": self.images,
            "options": self.options,
        }
