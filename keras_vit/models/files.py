"""Models and weights from Keras's own files."""

import pathlib

import h5py
import keras

WEIGHT_FILES = (".keras", ".weights.h5")


def load_weights(model, path):
    """Loads a Keras file of this very model into it: each variable from its own array, none left.

    Args:
        model: a built `keras.Model`.
        path: a `.keras` or `.weights.h5` file.

    Raises:
        ValueError: if there is no such file, it is of another kind, damaged, or of another model.
    """
    path = check_file("weights", path, WEIGHT_FILES)
    try:
        if path.suffix == ".keras":
            _copy_variables(keras.models.load_model(path, compile=False), model)
        else:
            _check_array_count(path, model)
            model.load_weights(path)
    # Keras lets the archive's and HDF5's own errors through, of many types.
    except Exception as error:
        raise ValueError(
            f"`weights` must be a Keras file of this very model ({model.name}, "
            f"{model.count_params():,} parameters). Received: weights={str(path)!r}, "
            f"which does not fit: {error}"
        ) from error


def _copy_variables(source, target):
    # Keras matches by class and position, and would leave out what is left over.
    saved = {variable.path: variable for variable in source.weights}
    wanted = {variable.path: variable for variable in target.weights}
    differences = [
        *(f"{path} is missing" for path in wanted if path not in saved),
        *(f"{path} is not used" for path in saved if path not in wanted),
        *(
            f"{path} is {tuple(saved[path].shape)}, not {tuple(wanted[path].shape)}"
            for path in wanted
            if path in saved and saved[path].shape != wanted[path].shape
        ),
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise ValueError("; ".join(differences[:3]) + more)
    for path, variable in wanted.items():
        variable.assign(saved[path])


def _check_array_count(path, model):
    arrays = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: arrays.append(name) if _is_weight(name, item) else None)
    if len(arrays) != len(model.weights):
        raise ValueError(f"it has {len(arrays)} arrays, the model {len(model.weights)} variables")


def _is_weight(name, item):
    is_state = name.startswith("optimizer") or "seed_generator" in name
    return isinstance(item, h5py.Dataset) and not is_state


def load_model(path):
    """Loads a `.keras` file.

    Args:
        path: of the file.

    Returns:
        A `keras.Model`, not compiled.

    Raises:
        ValueError: if there is no such file, or it is not a complete Keras model.
    """
    path = check_file("model", path, (".keras",))
    try:
        return keras.models.load_model(path, compile=False)
    # Keras lets the archive's and HDF5's own errors through, of many types.
    except Exception as error:
        raise ValueError(
            f"`model` must be a complete Keras model. Received: model={str(path)!r}, "
            f"which Keras cannot load: {error}"
        ) from error


def check_file(argument, path, suffixes):
    """The path, checked to be an existing file of one of these kinds."""
    path = pathlib.Path(path).expanduser()
    if not path.exists():
        raise ValueError(
            f"`{argument}` must be an existing file. Received: {argument}={str(path)!r}"
        )
    if not path.is_file() or not path.name.endswith(tuple(suffixes)):
        raise ValueError(
            f"`{argument}` must be a file that ends with {' or '.join(suffixes)}. "
            f"Received: {argument}={str(path)!r}"
        )
    return path
