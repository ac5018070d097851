"""Load models and weights from Keras's own files, and check that weights are finite."""

import collections
import io
import json
import pathlib
import zipfile

import h5py
import keras
import numpy as np
from keras import ops

from keras_vit.core.files import check_zip, hdf5_arrays
from keras_vit.core.image_spec import ImageSpec

WEIGHTS_SUFFIX = ".weights.h5"
# Name of the weights in a `.keras` file.
_WEIGHTS_MEMBER = "model.weights.h5"
# Greatest number of names that an error lists.
MAX_LISTED = 4


def load_weights(model, path):
    """Load a file that `Model.save_weights` wrote for the same architecture.

    If an error is raised, the weights of the model do not change.
    """
    path = check_file("path", path, (WEIGHTS_SUFFIX,))
    # Kept to undo a failed load: Keras assigns weights while it reads the file.
    before = model.get_weights()
    try:
        _check_arrays(path, model)
        model.load_weights(path)
    # Errors of HDF5 have many types.
    except Exception as error:
        model.set_weights(before)
        raise ValueError(
            f"`path` must be a Keras file of this very model ({model.name}, "
            f"{model.count_params():,} parameters). Received: path={str(path)!r}, "
            f"which does not fit: {error}"
        ) from error
    try:
        check_finite(model, "path", path)
    except ValueError:
        model.set_weights(before)
        raise


def _check_arrays(path, model):
    """Raise an error if the number of arrays or the names of layers differ from the model."""
    with h5py.File(path, "r") as file:
        num_arrays = _check_all_used(_weights_in(path, file), model)
        names = {_layer_name(group) for group in file.get("layers", {}).values()} - {None}
    if num_arrays < len(model.weights):
        raise ValueError(f"it has {num_arrays} arrays, the model {len(model.weights)} variables")
    different = names ^ {layer.name for layer in model.layers}
    if names and different:
        raise ValueError(f"only the file or the model has layers {', '.join(sorted(different))}")


def _weights_in(path, file):
    """Return name, number of weights and name of the layer for each group of an HDF5 file."""
    names = filter(_is_weight, hdf5_arrays(path, file))
    groups = collections.Counter("/".join(name.split("/")[:2]) for name in names)
    return [(name, count, _layer_name(file[name])) for name, count in groups.items()]


def _check_all_used(groups, model):
    """Return the number of weights in a file, or raise an error if the model has fewer."""
    num_arrays = sum(count for _, count, _ in groups)
    if num_arrays > len(model.weights):
        counts = {layer.name: len(layer.weights) for layer in model.layers}
        unused = [name for name, count, layer in groups if count > counts.get(layer, 0)]
        raise ValueError(
            f"it has {num_arrays} arrays, the model {len(model.weights)} variables: "
            f"unused arrays in {', '.join(unused[:MAX_LISTED])}"
        )
    return num_arrays


def _layer_name(group):
    """Return the name of the layer whose arrays are in a group, or `None` if it is not recorded."""
    has_name = isinstance(group, h5py.Group) and "vars" in group
    return group["vars"].attrs.get("name") if has_name else None


def _is_weight(name):
    return not name.startswith("optimizer/") and "seed_generator" not in name


def recorded_image_spec(path):
    """Return the `ImageSpec` that a `.keras` file records, without loading the model."""
    path = _check_keras_file(path)
    check_zip(path)
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))["config"]
    return ImageSpec(**config.get("image_spec", {}))


def load_model(path):
    """Load a `.keras` file, not compiled; raise a `ValueError` if a weight is not finite."""
    model = load_unchecked(path)
    check_finite(model, received=path)
    return model


def load_unchecked(path):
    """Load a `.keras` file without checking that the weights are finite."""
    path = _check_keras_file(path)
    try:
        check_zip(path)
        with zipfile.ZipFile(path) as archive:
            # Read at once, as Keras does: to seek backward, `zipfile` would read from the start.
            weights = io.BytesIO(archive.read(_WEIGHTS_MEMBER))
        with h5py.File(weights, "r") as file:
            groups = _weights_in(path, file)
        del weights
        model = keras.models.load_model(path, compile=False)
        # Keras ignores arrays that the model does not have.
        _check_all_used(groups, model)
    # Errors of the archive and of HDF5 have many types.
    except Exception as error:
        raise ValueError(
            f"`model` must be a complete Keras model. Received: model={str(path)!r}, "
            f"which cannot be loaded: {error}"
        ) from error
    return model


def _check_keras_file(path):
    path = check_file("model", path, (".keras",))
    if not zipfile.is_zipfile(path):
        # Keras would report a missing file.
        raise ValueError(
            "`model` must be a complete Keras model. "
            f"Received: model={str(path)!r}, which is not a .keras file, or not complete"
        )
    return path


def check_file(argument, path, suffixes):
    """Check that a path is an existing file with one of the suffixes; return it."""
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


def check_finite(model, argument="model", received=None, dtype=None):
    """Raise an error if a weight is NaN or infinite.

    Variables are checked one at a time on their device, so that the model is not copied.

    Args:
        model: a built `keras.Model`.
        argument: name of the argument that the model or its file was given as.
        received: value of that argument; `None` for the name of the model.
        dtype: dtype that the weights will be cast to. Values beyond its range count as infinite.

    Raises:
        ValueError: if a weight is not finite. The error names the variable.

    Example:
    >>> from keras_vit.models.keras_files import check_finite
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> model.get_layer("head").set_weights([np.zeros((192, 2)), np.array([0, np.nan])])
    >>> check_finite(model)
    Traceback (most recent call last):
    ValueError: `model` must have finite weights. Received: model='ViT_Ti16', whose head/bias ...
    """
    bad = [variable for variable in model.weights if not ops.all(_are_finite(variable, dtype))]
    if not bad:
        return
    values = ops.convert_to_numpy(_are_finite(bad[0], dtype))
    rule = f"finite weights in {dtype}" if dtype else "finite weights"
    more = f" ({len(bad) - 1} more variables have such values too)" if bad[1:] else ""
    raise ValueError(
        f"`{argument}` must have {rule}. "
        f"Received: {argument}={str(received or model.name)!r}, whose {bad[0].path} has "
        f"{np.sum(~values)} NaN or infinite values of {values.size}{more}"
    )


def _are_finite(variable, dtype):
    # Integers, such as the kernels of an int8 model, are finite.
    if not keras.backend.is_float_dtype(variable.dtype):
        return True
    return ops.isfinite(ops.cast(variable.value, dtype or variable.dtype))
