"""The states of a run: what it needs to be resumed as if it had not been stopped."""

import contextlib
import json
import logging
import pathlib
import random

import keras
import numpy as np
from keras import ops

from keras_vit.core.files import differences, read_npz, replacing
from keras_vit.core.text import name_some
from keras_vit.training.distribution import is_first_process, to_numpy
from keras_vit.training.runs.variable_names import named_metrics, named_variables


class States:
    """The states of a run in a directory, one file each, of which the last are kept.

    A state is an `.npz` file of all variables (weights, random seeds, optimizer, metrics), named as
    `named_variables` does, and of `facts` in JSON.
    """

    def __init__(self, directory, keep):
        self.directory = pathlib.Path(directory)
        self.keep = keep

    def save(self, model, batch, facts):
        """Save the state after a number of batches, and delete the oldest."""
        # The other processes have a directory of their own, which is removed.
        if not is_first_process():
            return
        self.directory.mkdir(exist_ok=True)
        variables = {**named_variables(model), **named_metrics(model)}
        arrays = {name: _to_numpy(variable) for name, variable in variables.items()}
        facts = json.dumps({"batch": batch, **facts})
        path = self.directory / f"batch-{batch:09d}.npz"
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, facts=facts, **random_states(), **arrays)
        paths = self._paths()
        newest = paths.index(path)
        # Later ones are damaged, or the run would have resumed from them.
        for old in (*paths[: max(0, newest + 1 - self.keep)], *paths[newest + 1 :]):
            old.unlink(missing_ok=True)

    def load(self):
        """Return `(arrays, facts)` of the last state that can be read; `None` without states."""
        paths = self._paths()[::-1]
        for path in paths:
            try:
                arrays = read_npz(path)
                facts = json.loads(str(arrays.pop("facts")))
                return arrays, facts
            # Errors of damaged files have many types.
            except Exception as error:
                logging.getLogger("keras_vit").warning("%s cannot be read: %s", path, error)
        if paths:
            raise ValueError(
                "`workdir` must have a state that can be read, to be resumed. "
                f"Received: {len(paths)} damaged in {str(self.directory)!r}"
            )
        return None

    @property
    def last(self):
        """The path of the last state, or `None`."""
        return next(reversed(self._paths()), None)

    def _paths(self):
        return sorted(self.directory.glob("batch-*.npz"))


def recorded_options(model):
    """Return the options of a model as JSON has them, or `None` if it carries none."""
    options = getattr(model, "options", None)
    if options is None:
        return None
    runtime = options.names("runtime")
    recorded = {name: value for name, value in vars(options).items() if name not in runtime}
    return json.loads(json.dumps(recorded))


def check_same_model(options, state):
    """Check that a resumed run has a model of the options that it was begun with."""
    before = state[1].get("options")
    changed = differences(before, options) if before and options else []
    if changed:
        raise ValueError(
            f"A resumed run must have the model it was begun with. Received: {', '.join(changed)}"
        )


def restore(model, arrays):
    """Assign the arrays of a state to a compiled model and its optimizer, which is built.

    Return the arrays of the metrics, for `RestoreMetrics`: Keras lists their variables later.
    """
    variables = named_variables(model)
    saved = {name: a for name, a in arrays.items() if name.startswith(("model/", "optimizer/"))}
    problems = [f"{name} is not in the state" for name in variables if name not in saved]
    problems += [f"{name} is only in the state" for name in saved if name not in variables]
    problems += [
        f"{name} of shape {tuple(variable.shape)}, in the state {saved[name].shape}"
        for name, variable in variables.items()
        if name in saved and saved[name].shape != tuple(variable.shape)
    ]
    if problems:
        raise ValueError(
            "`model` must be the one that the run was begun with. Received: a model with other "
            f"variables than the state: {name_some(problems)}"
        )
    for name, variable in variables.items():
        variable.assign(ops.cast(saved[name], variable.dtype))
    return {name: array for name, array in arrays.items() if name.startswith("metrics/")}


class RestoreMetrics(keras.callbacks.Callback):
    """Restore metrics when resuming mid-epoch.

    Keras lists their variables, which are sums, only after the first batch. The sums of earlier
    batches are added then.
    """

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def on_train_batch_end(self, batch, logs=None):
        if batch:
            return
        for name, variable in named_metrics(self.model).items():
            variable.assign_add(ops.cast(self.arrays[name], variable.dtype))


def _to_numpy(variable):
    array = to_numpy(variable)
    # NumPy's files have no bfloat16; float32 has all its values.
    return array.astype("float32") if variable.dtype == "bfloat16" else array


def random_states():
    """Return the states of torch's generators, which Keras uses there; other backends have none."""
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = (torch.get_rng_state(), *torch.cuda.get_rng_state_all())
    return {f"random/{number}": state.cpu().numpy() for number, state in enumerate(states)}


@contextlib.contextmanager
def keeping_random_states():
    """Restore the states of the global generators of Python, NumPy and torch after a `with`."""
    python, numpy, torch = random.getstate(), np.random.get_state(), random_states()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        _restore_random_states(list(torch.values()))


def _restore_random_states(arrays):
    """Restore the arrays of `random_states`; there are none without torch."""
    if arrays:
        import torch

        states = [torch.from_numpy(array) for array in arrays]
        torch.set_rng_state(states[0])
        torch.cuda.set_rng_state_all(states[1:])


class RestoreRandomStates(keras.callbacks.Callback):
    """Restore the states of torch's generators, which building a model has changed."""

    def __init__(self, arrays):
        super().__init__()
        self.states = [arrays[name] for name in random_states()]

    def on_train_batch_begin(self, batch, logs=None):
        _restore_random_states(self.states)
        self.states = []
