"""The variables of a model in memory, read like the arrays of a file."""

import keras

from keras_vit.checkpoints.archives import ArrayArchive
from keras_vit.models.model import options_of
from keras_vit.models.parts import stored_size
from keras_vit.models.surgery import plain, resize


def at_stored_size(model):
    """Return a plain model; one of any size at its `stored_size`."""
    takes_any_size = options_of(model).image_size is None
    model = plain(model)
    return resize(model, stored_size(model)) if takes_any_size else model


class ModelArchive(ArrayArchive):
    """The variables of a model, with the attributes of `ArrayArchive` and `model`."""

    def __init__(self, model, path, config):
        super().__init__(path, {variable.path: variable for variable in model.weights}, config)
        self.model = model
        self.dtypes = {variable.path: variable.dtype for variable in model.weights}

    def read(self, name):
        """Return the value of the variable of that path."""
        return keras.ops.convert_to_numpy(self._arrays[name].value)
