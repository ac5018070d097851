"""Models and weights from Keras's own files."""

import pathlib

import keras

WEIGHT_FILES = (".keras", ".weights.h5")


def load_weights(model, path):
    """Loads a Keras file of this very model into it.

    Args:
        model: a built `keras.Model`.
        path: a `.keras` or `.weights.h5` file.

    Raises:
        ValueError: if there is no such file, it is of another kind, damaged, or of another model.
    """
    path = check_file("weights", path, WEIGHT_FILES)
    try:
        model.load_weights(path)
    # Keras lets the archive's and HDF5's own errors through, of many types.
    except Exception as error:
        raise ValueError(
            f"`weights` must be a Keras file of this very model ({model.name}, "
            f"{model.count_params():,} parameters). Received: weights={str(path)!r}, "
            f"which Keras cannot load into it: {error}"
        ) from error


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
    if not path.name.endswith(tuple(suffixes)):
        raise ValueError(
            f"`{argument}` must end with {' or '.join(suffixes)}. "
            f"Received: {argument}={str(path)!r}"
        )
    if not path.is_file():
        raise ValueError(
            f"`{argument}` must be an existing file. Received: {argument}={str(path)!r}"
        )
    return path
