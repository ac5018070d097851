"""Arrays in memory, and what all archives share."""

import contextlib

import numpy as np

from keras_vit.core.arguments import path_error


class ArrayArchive:
    """Arrays in memory, read like those of a file; error messages call them `path`."""

    is_mapped = True

    def __init__(self, path, arrays, config, preprocessor=None):
        self.path = path
        self.config = config
        self.preprocessor = preprocessor or {}
        self._arrays = arrays
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}

    def read(self, name):
        """Return the array of that name in float32."""
        return as_float32(name, self._arrays[name])

    def close(self):
        """Do nothing; archives of files close them."""


@contextlib.contextmanager
def naming_damage(path):
    """Raise a `ValueError` that names the file for any error of reading it."""
    try:
        yield
    # Errors of damaged files have many types; a wrong size may exceed the memory.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise path_error(path, "be a complete file of arrays", f" ({reason})") from error


def as_float32(name, array):
    """Return the array in float32, which is exact for float16 and bfloat16.

    NumPy stores bfloat16 as void of two bytes (`|V2`): the upper half of a float32.

    Example:
    >>> as_float32("x", np.array([0x3FC0], "uint16").view("V2"))
    array([1.5], dtype=float32)
    """
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind != "f":
        raise ValueError(
            f"the array {name!r} must hold floating-point numbers. Received: dtype={array.dtype}"
        )
    # The caller checks for infinity.
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)
