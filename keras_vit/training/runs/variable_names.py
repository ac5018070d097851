"""Names of the variables in a state, the same in each process."""

import collections
import re


def named_variables(model):
    r"""Name the variables of a compiled model and of its optimizer.

    The names are the variables' paths, without the numbers that Keras gives to names in the order
    of a process: `dense_5` is `dense` if it is the first such layer of the model. So a state fits
    the same model in another process, or after other models were built.

    Args:
        model: a model whose optimizer is built.

    Returns:
        A dictionary from names to variables, in Keras's order, without those of a frozen teacher.

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
    # Keras names the variables of an optimizer by the paths of those that they belong to.
    owners = {path.replace("/", "_"): name for path, name in paths.items()}
    for variable in model.optimizer.variables:
        optimizer, _, name = variable.path.rpartition("/")
        owner, _, slot = name.rpartition("_")
        name = f"{slot}/{owners[owner]}" if owner in owners else name
        named.append((f"optimizer/{_without_number(optimizer)}/{name}", variable))
    return _without_repeats(named)


def named_metrics(model):
    """Return a dictionary of the variables of a model's metrics, by names as `named_variables`."""
    return _without_repeats((f"metrics/{v.path}", v) for v in model.metrics_variables)


def _layers(layer):
    yield layer
    for inner in getattr(layer, "layers", ()):
        yield from _layers(inner)


def _renumbered(parts, layers, numbers):
    """Join the parts of a path, with the numbers of automatic names from 0 on in each model.

    `numbers` are those given so far, by names without number; it grows.
    """
    parts = list(parts)
    for index, name in enumerate(parts):
        stem, layer = _without_number(name), layers.get(name)
        class_name = "seedgenerator" if layer is None else type(layer).__name__.lower()
        if stem.replace("_", "") == class_name:
            known = numbers.setdefault(stem, {})
            number = known.setdefault(name, len(known))
            parts[index] = f"{stem}_{number}" if number else stem
        # Sublayers of a layer that is not a model have names of their own.
        if not hasattr(layer, "layers"):
            break
    return "/".join(parts)


def _without_number(name):
    return re.sub(r"_\d+$", "", name)


def _without_repeats(named):
    """Make a dictionary of pairs; a name that comes again gets the number of its occurrence."""
    found, counts = {}, collections.Counter()
    for name, variable in named:
        counts[name] += 1
        found[f"{name}:{counts[name]}" if counts[name] > 1 else name] = variable
    return found
