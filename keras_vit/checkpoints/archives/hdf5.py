"""The arrays of an HDF5 file in the layout of Keras 2, as `tf_model.h5` of transformers."""

import contextlib

import h5py
import numpy as np

from keras_vit.checkpoints.archives.memory import as_float32, naming_damage
from keras_vit.checkpoints.configuration import read_configuration
from keras_vit.core.files import hdf5_arrays


class Hdf5Archive:
    """An `.h5` file, with the JSON files next to it."""

    is_mapped = True

    def __init__(self, path):
        self.path = path
        self.config, self.preprocessor = read_configuration(path.parent)
        with naming_damage(path), contextlib.ExitStack() as stack:
            self._file = stack.enter_context(h5py.File(path, "r"))
            arrays = hdf5_arrays(path, self._file)
            self.shapes = {name: array.shape for name, array in arrays.items()}
            self.dtypes = {name: array.dtype.name for name, array in arrays.items()}
            self._exit = stack.pop_all()

    def read(self, name):
        """Return the array of that name in float32."""
        with naming_damage(self.path):
            array = np.asarray(self._file[name][()])
        return as_float32(name, array)

    def close(self):
        """Close the file."""
        self._exit.close()


def write_hdf5(path, arrays, image_size):
    """Write arrays with the attributes by which Keras 2 and transformers find them.

    The first part of a name is that of the layer. `image_size` is ignored; the `config.json`
    records it.
    """
    layers = {}
    for name in arrays:
        layer, _, weight = name.partition("/")
        layers.setdefault(layer, []).append(weight)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = list(layers)
        file.attrs["backend"] = "tensorflow"
        file.attrs["keras_version"] = "2.15.0"
        for layer, weights in layers.items():
            group = file.create_group(layer)
            group.attrs["weight_names"] = weights
            for weight in weights:
                group.create_dataset(weight, data=arrays[f"{layer}/{weight}"])
