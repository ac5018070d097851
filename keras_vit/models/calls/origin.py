"""Which file the weights of a model come from."""

import pathlib


def set_origin(model, path):
    """Record on a model which file its weights come from; `None` for new or published weights."""
    model._keras_vit_origin = None if path is None else pathlib.Path(path).resolve()


def origin_of(model):
    """Return the path of `set_origin`, `None` if there is none."""
    return getattr(model, "_keras_vit_origin", None)
