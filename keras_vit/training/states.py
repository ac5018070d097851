"""States of a run: files of all its variables, from which the run resumes where it stopped."""

import collections
import contextlib
import json
import logging
import pathlib
import random
import re

import keras
import numpy as np
from keras import ops

from keras_vit.core.files import PARTIAL, read_npz, replacing
from keras_vit.core.text import name_some
from keras_vit.training.distribution import is_first_process, to_numpy


class States:
    """The states of a run in a directory. The last `keep` states are kept.

    A state is an `.npz` file. It contains all variables (weights, random seeds, optimizer, metrics)
    under the names of `named_variables`, and `metadata` in JSON.
    """

    def __init__(self, directory, keep=2):
        self.directory = pathlib.Path(directory)
        self.keep = keep

    def save(self, model, batch, metadata):
        """Save the state after `batch` batches, and delete the oldest state."""
        # The directory of each other process is temporary.
        if not is_first_process():
            return
        self.directory.mkdir(exist_ok=True)
        variables = {**named_variables(model), **named_metrics(model)}
        arrays = {name: _to_numpy(variable) for name, variable in variables.items()}
        metadata = json.dumps({"batch": batch, **metadata})
        path = self.directory / f"batch-{batch:09d}.npz"
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, metadata=metadata, **random_states(), **arrays)
        paths = self._paths()
        newest = paths.index(path)
        # States of later batches are damaged: otherwise the run would have resumed from them. A
        # process that was killed may have left partial files.
        old = [*paths[: max(0, newest + 1 - self.keep)], *paths[newest + 1 :]]
        for each in (*old, *self.directory.glob(f".*{PARTIAL}*")):
            each.unlink(missing_ok=True)

    def load(self):
        """Return `(arrays, metadata)` of the last readable state; `None` if there are no states."""
        paths = self._paths()[::-1]
        for path in paths:
            try:
                arrays = read_npz(path)
                metadata = json.loads(str(arrays.pop("metadata")))
                return arrays, metadata
            # Errors of damaged files have many types.
            except Exception as error:
                logging.getLogger("keras_vit").warning("%s cannot be read: %s", path, error)
        if paths:
            raise ValueError(
                "`workdir` must have a readable state to resume from. "
                f"Received: {len(paths)} damaged states in {str(self.directory)!r}"
            )
        return None

    def _paths(self):
        return sorted(self.directory.glob("batch-*.npz"))


def _to_numpy(variable):
    array = to_numpy(variable)
    # NumPy cannot save bfloat16. float32 represents all values of bfloat16 exactly.
    return array.astype("float32") if variable.dtype == "bfloat16" else array


def restore(model, arrays):
    """Assign the arrays of a state to a compiled model and its optimizer, which must be built.

    Return the arrays of the metrics, for `RestoreMetrics`: Keras lists their variables later.
    """
    variables = named_variables(model)
    saved = {name: a for name, a in arrays.items() if name.startswith(("model/", "optimizer/"))}
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    saved_shapes = {name: array.shape for name, array in saved.items()}
    if shapes != saved_shapes:
        differing = sorted({name for name, _ in shapes.items() ^ saved_shapes.items()})
        raise ValueError(
            "`model` must be the model that the run was begun with. Received: a model whose "
            f"variables or their shapes differ from the state: {name_some(differing)}"
        )
    for name, variable in variables.items():
        variable.assign(ops.cast(saved[name], variable.dtype))
    return {name: array for name, array in arrays.items() if name.startswith("metrics/")}


class RestoreMetrics(keras.callbacks.Callback):
    """Restore metrics when resuming mid-epoch.

    The variables of metrics are sums over batches. Keras lists them in `metrics_variables` only
    after the first batch, so this callback then adds the saved sums of earlier batches.
    """

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def on_train_batch_end(self, batch, logs=None):
        if batch:
            return
        for name, variable in named_metrics(self.model).items():
            variable.assign_add(ops.cast(self.arrays[name], variable.dtype))


def random_states():
    """Return the states of torch's global generators; `{}` on other backends, which use none."""
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = (torch.get_rng_state(), *torch.cuda.get_rng_state_all())
    return {f"random/{number}": state.cpu().numpy() for number, state in enumerate(states)}


@contextlib.contextmanager
def keeping_random_states():
    """After a `with`, restore the states of the global generators of Python, NumPy and torch."""
    python, numpy, torch = random.getstate(), np.random.get_state(), random_states()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        _restore_random_states(list(torch.values()))


def _restore_random_states(arrays):
    """Restore torch's generators from the arrays of `random_states`; do nothing without arrays."""
    if arrays:
        import torch

        states = [torch.from_numpy(array) for array in arrays]
        torch.set_rng_state(states[0])
        torch.cuda.set_rng_state_all(states[1:])


class RestoreRandomStates(keras.callbacks.Callback):
    """Restore torch's generators before the first batch: building a model has changed them."""

    def __init__(self, arrays):
        super().__init__()
        self.states = [arrays[name] for name in random_states()]

    def on_train_batch_begin(self, batch, logs=None):
        _restore_random_states(self.states)
        self.states = []


def named_variables(model):
    r"""Name the variables of a compiled model and of its optimizer.

    The names are the variables' paths, with layers numbered per model. Keras numbers layers without
    an explicit name per process: `dense_5` becomes `dense` if it is the first such layer of the
    model. So a state fits the same model in another process, or after other models were built.

    Args:
        model: a model whose optimizer is built.

    Returns:
        A dictionary from names to variables, in Keras's order, without a frozen teacher's
        variables.

    Example:
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(momentum=0.9))
    >>> model.optimizer.build(model.trainable_variables)
    >>> print(*named_variables(model), sep="\n")
    model/sequential/dense/kernel
    model/sequential/dense/bias
    optimizer/sgd/iteration
    optimizer/sgd/learning_rate
    optimizer/sgd/momentum/sequential/dense/kernel
    optimizer/sgd/momentum/sequential/dense/bias
    """
    layers, numbers = {layer.name: layer for layer in _layers(model)}, {}
    frozen = {id(v) for v in getattr(getattr(model, "teacher", None), "variables", ())}
    variables = [variable for variable in model.variables if id(variable) not in frozen]
    paths = {v.path: _renumbered(v.path.split("/"), layers, numbers) for v in variables}
    named = [(f"model/{paths[variable.path]}", variable) for variable in variables]
    # The name of an optimizer's variable contains the path of the model's variable, its owner.
    owners = {path.replace("/", "_"): name for path, name in paths.items()}
    for variable in model.optimizer.variables:
        optimizer, _, name = variable.path.rpartition("/")
        owner = max((o for o in owners if name.startswith(f"{o}_")), key=len, default=None)
        # Without an owner: Nadam has a variable without a name, to which Keras gives a number.
        slot = _without_number(name) if owner is None else name.removeprefix(f"{owner}_")
        name = slot if owner is None else f"{slot}/{owners[owner]}"
        named.append((f"optimizer/{_without_number(optimizer)}/{name}", variable))
    return _numbered(named)


def named_metrics(model):
    """Return a dictionary from names to the variables of a model's metrics."""
    return _numbered((f"metrics/{v.path}", v) for v in model.metrics_variables)


def _layers(layer):
    yield layer
    for inner in getattr(layer, "layers", ()):
        yield from _layers(inner)


def _renumbered(parts, layers, numbers):
    """Return the path of a variable, with automatic names numbered from 0 in the model.

    `numbers` maps each name without number to the numbers given so far; new numbers are added.
    """
    parts = list(parts)
    for index, name in enumerate(parts):
        stem, layer = _without_number(name), layers.get(name)
        class_name = "seedgenerator" if layer is None else type(layer).__name__.lower()
        if stem.replace("_", "") == class_name:
            of_stem = numbers.setdefault(stem, {})
            number = of_stem.setdefault(name, len(of_stem))
            parts[index] = f"{stem}_{number}" if number else stem
        # Only a model's layers have automatic names. Sublayers of other layers have explicit names.
        if not hasattr(layer, "layers"):
            break
    return "/".join(parts)


def _without_number(name):
    return re.sub(r"_\d+$", "", name)


def _numbered(named):
    """Return the dictionary of `(name, variable)` pairs. The second `a` is renamed to `a:2`."""
    variables, counts = {}, collections.Counter()
    for name, variable in named:
        counts[name] += 1
        variables[f"{name}:{counts[name]}" if counts[name] > 1 else name] = variable
    return variables
