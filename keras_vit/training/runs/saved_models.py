"""Save the models of runs with their class names."""

import pathlib

import keras
from keras import ops

from keras_vit.core.files import exists, replacing
from keras_vit.data.sources.kinds import find_kind, has_path
from keras_vit.models.model import ImageModel, carry
from keras_vit.training.distribution import is_spread, to_numpy


def save_model(model, path, class_names=None):
    """Save a `.keras` file without the optimizer, atomically.

    The model that is saved gets the `class_names`, a list or `None`.
    """
    with replacing(path) as partial:
        try:
            _without_optimizer(model, class_names).save(partial)
        except RuntimeError as error:
            # What h5py raises where a disk is full.
            raise OSError(str(error)) from error


def _without_optimizer(model, class_names):
    model = _on_one_device(model)
    kind = ImageModel if isinstance(model, ImageModel) else keras.Model
    new = kind(model.input, model.output, name=model.name, trainable=model.trainable)
    carry(model, new)
    # The model that predicts masked patches has other outputs than classes.
    if class_names and kind is ImageModel and new.output_shape[-1] == len(class_names):
        new.class_names = class_names
    return new


def _on_one_device(model):
    """Return the model, or a copy of one that is divided among the devices of processes."""
    arrays = {
        variable.path: to_numpy(variable) for variable in model.weights if is_spread(variable)
    }
    if not arrays:
        return model
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        copy = type(model).from_config(model.get_config())
        for old, new in zip(model.weights, copy.weights, strict=True):
            new.assign(arrays[old.path] if old.path in arrays else ops.convert_to_numpy(old))
    finally:
        keras.distribution.set_distribution(distribution)
    carry(model, copy)
    return copy


def check_data_path(name):
    """Check that the folder or the file of a run's images is there; patterns are not checked."""
    kind, path = find_kind(name)
    if not has_path(name) or kind.placeholder == "PATTERN":
        return
    if not exists(pathlib.Path(path).expanduser()):
        raise ValueError(
            "`data` (`--data`) must be the images that the run was begun with; if they have moved, "
            f"give their new path. Received: data={name!r}, which does not exist"
        )
