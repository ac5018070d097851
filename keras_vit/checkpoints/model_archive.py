"""The variables of a model in memory, read like the arrays of a file."""

import keras

from keras_vit.checkpoints.archives.memory import ArrayArchive


class ModelArchive(ArrayArchive):
    """The variables of a model, with the attributes of `ArrayArchive` and `model`."""

    def __init__(self, model, path, config):
        super().__init__(path, {variable.path: variable for variable in model.weights}, config)
        self.model = model
        self.dtypes = {variable.path: variable.dtype for variable in model.weights}

    def read(self, name):
        """Return the value of the variable of that path."""
        return keras.ops.convert_to_numpy(self._arrays[name].value)
