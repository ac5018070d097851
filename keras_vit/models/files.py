"""Models and weights from Keras's own files."""

import collections
import pathlib
import zipfile

import h5py
import keras

from keras_vit.models.origin import set_origin
from keras_vit.models.weights import check_finite

WEIGHTS_SUFFIX = ".weights.h5"
# Name of the weights in a `.keras` file.
_WEIGHTS_MEMBER = "model.weights.h5"
# Names that an error lists.
MAX_LISTED = 4


def load_weights(model, path):
    """Loads what `Model.save_weights` wrote for this very model: no array is left over.

    Args:
        model: a built `keras.Model`; an error leaves it as it was.
        path: of a `.weights.h5` file.

    Raises:
        ValueError: if there is no such file, it is damaged, of another model, or has weights that
            are not finite.
    """
    path = check_file("path", path, (WEIGHTS_SUFFIX,))
    # Keras assigns while it reads.
    before = model.get_weights()
    try:
        _check_arrays(path, model)
        model.load_weights(path)
    # Keras lets HDF5's own errors through, of many types.
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
    set_origin(model, path)


def _check_arrays(path, model):
    """Raise an error if the number of arrays or the names of layers are not the model's."""
    with h5py.File(path, "r") as file:
        num_arrays = _check_all_used(file, model)
        names = {_layer_name(group) for group in file.get("layers", {}).values()} - {None}
    if num_arrays < len(model.weights):
        raise ValueError(f"it has {num_arrays} arrays, the model {len(model.weights)} variables")
    different = names ^ {layer.name for layer in model.layers}
    if names and different:
        raise ValueError(f"only one of them has the layers {', '.join(sorted(different))}")


def _check_all_used(file, model):
    """Return the number of weights in an HDF5 file, or raise an error if the model has fewer."""
    arrays = []
    file.visititems(lambda name, item: arrays.append(name) if _is_weight(name, item) else None)
    if len(arrays) > len(model.weights):
        groups = collections.Counter("/".join(name.split("/")[:2]) for name in arrays)
        unused = [name for name, n in groups.items() if n > _num_weights(file[name], model)]
        raise ValueError(
            f"it has {len(arrays)} arrays, the model {len(model.weights)} variables: "
            f"unused arrays in {', '.join(unused[:MAX_LISTED])}"
        )
    return len(arrays)


def _num_weights(group, model):
    """The number of variables of the layer whose arrays a group holds."""
    name = _layer_name(group) if isinstance(group, h5py.Group) else None
    return sum(len(layer.weights) for layer in model.layers if layer.name == name)


def _layer_name(group):
    """The name that Keras records next to a layer's arrays, or `None`."""
    return group["vars"].attrs.get("name") if "vars" in group else None


def _is_weight(name, item):
    is_state = name.startswith("optimizer/") or "seed_generator" in name
    return isinstance(item, h5py.Dataset) and not is_state


def load_model(path):
    """Load a `.keras` file whose weights are all finite.

    Args:
        path: of the file.

    Returns:
        A `keras.Model`, not compiled.

    Raises:
        ValueError: if there is no such file, it is not a complete Keras model, or it has weights
            that are not finite.
    """
    model = load_unchecked(path)
    check_finite(model, received=path)
    return model


def load_unchecked(path):
    """Load a `.keras` file for a caller that checks the values itself.

    Args:
        path: of the file.

    Returns:
        A `keras.Model`, not compiled.

    Raises:
        ValueError: if there is no such file, or it is not a complete Keras model.
    """
    path = check_file("model", path, (".keras",))
    if not zipfile.is_zipfile(path):
        # Of which Keras says that there is no such file.
        raise ValueError(
            "`model` must be a complete Keras model. "
            f"Received: model={str(path)!r}, which is no .keras file or not all of one"
        )
    try:
        model = keras.models.load_model(path, compile=False)
        # Keras leaves out arrays that the model has no place for.
        with (
            zipfile.ZipFile(path) as archive,
            archive.open(_WEIGHTS_MEMBER) as weights,
            h5py.File(weights, "r") as file,
        ):
            _check_all_used(file, model)
    # Keras lets the archive's and HDF5's own errors through, of many types.
    except Exception as error:
        raise ValueError(
            f"`model` must be a complete Keras model. Received: model={str(path)!r}, "
            f"which Keras cannot load: {error}"
        ) from error
    set_origin(model, path)
    return model


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
