"""What a stopped run needs to go on as if nothing had happened."""

import json
import logging
import pathlib

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.archives.npz import DAMAGED
from keras_vit.core.files import differences, replacing
from keras_vit.models.describe import describe


class States:
    """The states of a run in a directory, one file for each, of which the last are kept.

    A state has all variables (weights, states of random numbers, optimizer, metrics) and facts.

    Args:
        directory: path; made when the first state is saved.
        keep: how many states are kept.
    """

    def __init__(self, directory, keep):
        self.directory = pathlib.Path(directory)
        self.keep = keep

    def save(self, model, batch, facts):
        """Saves the state behind so many batches, and deletes the oldest."""
        self.directory.mkdir(exist_ok=True)
        variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        arrays = [*random_states(), *map(_to_numpy, variables)]
        arrays = {str(index): array for index, array in enumerate(arrays)}
        facts = json.dumps({"batch": batch, **facts})
        path = self.directory / f"batch-{batch:09d}.npz"
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, facts=facts, **arrays)
        paths = self._paths()
        newest = paths.index(path)
        # A later one is damaged, or the run would have gone on from it.
        for old in (*paths[: max(0, newest + 1 - self.keep)], *paths[newest + 1 :]):
            old.unlink(missing_ok=True)

    def load(self):
        """The last state that can be read, as `(arrays, facts)`, or `None` where there is none.

        Raises:
            ValueError: if there are states and none can be read.
        """
        paths = self._paths()[::-1]
        for path in paths:
            try:
                # NumPy leaves a file of its own open where it is damaged.
                with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                    arrays = [file[str(index)] for index in range(len(file.files) - 1)]
                    return arrays, json.loads(str(file["facts"]))
            except DAMAGED as error:
                logging.getLogger("keras_vit").warning("%s cannot be read: %s", path, error)
        if paths:
            raise ValueError(
                "`workdir` must have a state that can be read to go on. "
                f"Received: {len(paths)} damaged in {str(self.directory)!r}"
            )
        return None

    @property
    def last(self):
        """The path of the last state, or `None`."""
        return next(reversed(self._paths()), None)

    def _paths(self):
        return sorted(self.directory.glob("batch-*.npz"))


def options_of(model):
    """The options of the model's builder as JSON has them, or `None` if no builder makes it."""
    try:
        return json.loads(json.dumps(describe(model)))
    except ValueError:
        return None


def check_same_model(options, state):
    """Check that a resumed run has a model of the options that it was begun with.

    Args:
        options: what `options_of` returns of the model.
        state: what `States.load` returned.

    Raises:
        ValueError: if they are others; states of versions before 0.2 do not record them.
    """
    before = state[1].get("options")
    changed = differences(before, options) if before and options else []
    if changed:
        raise ValueError(
            f"A resumed run must have the model it was begun with. Received: {', '.join(changed)}"
        )


def restore(model, arrays):
    """Gives a model and its optimizer the variables of a state.

    Args:
        model: the compiled model, its optimizer built.
        arrays: of the state.

    Returns:
        The arrays of the metrics, which Keras has no variables for yet.

    Raises:
        ValueError: if the state is of another model.
    """
    arrays = arrays[len(random_states()) :]
    variables = [*model.variables, *model.optimizer.variables]
    count = len(variables)
    if [array.shape for array in arrays[:count]] != [tuple(v.shape) for v in variables]:
        raise ValueError(
            "`model` must be the one that the run was begun with. Received: a model of "
            f"{count} variables, not all of which have the shapes of those in the state"
        )
    for variable, array in zip(variables, arrays, strict=False):
        variable.assign(ops.cast(array, variable.dtype))
    return arrays[count:]


class RestoreMetrics(keras.callbacks.Callback):
    """Lets the metrics of an epoch go on that was stopped in its middle.

    Keras makes their variables, which are sums, in the first batch. What was there before it is
    added behind it.

    Args:
        arrays: of the metrics.
    """

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            for variable, array in zip(self.model.metrics_variables, self.arrays, strict=True):
                variable.assign_add(ops.cast(array, variable.dtype))


def _to_numpy(variable):
    # NumPy's files do not know bfloat16; float32 has all its values.
    value = ops.cast(variable, "float32") if variable.dtype == "bfloat16" else variable
    return ops.convert_to_numpy(value)


def random_states():
    """Where torch's generators are, from which Keras drops there; others draw from variables."""
    if keras.backend.backend() != "torch":
        return []
    import torch

    return [
        state.cpu().numpy() for state in (torch.get_rng_state(), *torch.cuda.get_rng_state_all())
    ]


class RestoreRandomStates(keras.callbacks.Callback):
    """Puts torch's generators where they were, behind what Keras draws to build a model.

    Args:
        arrays: of the state.
    """

    def __init__(self, arrays):
        super().__init__()
        self.states = arrays[: len(random_states())]

    def on_train_batch_begin(self, batch, logs=None):
        if self.states:
            import torch

            states = [torch.from_numpy(array) for array in self.states]
            torch.set_rng_state(states[0])
            torch.cuda.set_rng_state_all(states[1:])
            self.states = []
