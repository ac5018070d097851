"""Checks of the weights of a model."""

import keras
import numpy as np
from keras import ops


def check_finite(model, argument="model", received=None, dtype=None):
    """Raise an error if a weight is NaN or infinite.

    Variables are checked one at a time where they are: no second copy of the model is made.

    Args:
        model: a built `keras.Model`.
        argument: name of the argument that the model or its file was given as.
        received: value of that argument; `None` for the name of the model.
        dtype: what the weights will be cast to; values beyond its range become infinite.

    Raises:
        ValueError: if a weight is not finite. The error names the variable.

    Example:
    >>> from keras_vit.models.weights import check_finite
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
    # Integers, such as the kernels of a model in int8, are finite.
    if not keras.backend.is_float_dtype(variable.dtype):
        return True
    return ops.isfinite(ops.cast(variable.value, dtype or variable.dtype))
