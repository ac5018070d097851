"""The variables of a model in memory, read like the arrays of a file."""

import functools

import keras

from keras_vit.models.introspection import options_of


class ModelArchive:
    """The variables of a model; the attributes are those of the archives of files.

    Attributes:
        path: name of the model, or path of its file, for error messages.
        model: the model.
        shapes: shape of each variable by path.
        dtypes: name of the dtype of each variable by path.
        config: options of the model, with its name and dtype policy.
    """

    is_mapped = True

    def __init__(self, model, path=None):
        self.path = path or model.name
        self.model = model
        self._variables = {variable.path: variable for variable in model.weights}
        self.shapes = {path: tuple(v.shape) for path, v in self._variables.items()}
        self.dtypes = {path: v.dtype for path, v in self._variables.items()}

    # Only read for the models of this package.
    @functools.cached_property
    def config(self):
        policy = next(layer for layer in self.model.layers if layer.weights).dtype_policy.name
        return {**options_of(self.model), "name": self.model.name, "dtype": policy}

    def read(self, name):
        """Return the value of the variable of that path."""
        return keras.ops.convert_to_numpy(self._variables[name].value)

    def close(self):
        """Do nothing; archives of files close them."""
