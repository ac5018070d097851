"""Arrays of Python objects."""

import numpy as np


def as_objects(values):
    """Return a sequence as an array `(length,)` of its values, whatever they are.

    NumPy would make a matrix of lists of one length, and cut zeros off the end of bytes.

    Example:
    >>> from keras_vit.core.objects import as_objects
    >>> as_objects([[1, 2], [3, 4]]).shape
    (2,)
    """
    array = np.empty(len(values), object)
    array[:] = values
    return array
