"""The file that the weights of a model come from."""

import pathlib


def set_origin(model, path):
    """Record which file the weights of a model come from, on the model object alone.

    Args:
        model: a `keras.Model`.
        path: of the file; `None` for new or published weights.
    """
    model._keras_vit_origin = None if path is None else pathlib.Path(path).resolve()


def origin_of(model):
    """Return the path of `set_origin`, `None` if there is none."""
    return getattr(model, "_keras_vit_origin", None)
