"""Checkpoint files that are changed for a test."""

import numpy as np

from tests.reference import case_path


def case_arrays(name):
    """The arrays of a case's `.npz`, by name."""
    with np.load(case_path(name), allow_pickle=False) as arrays:
        return dict(arrays)


def write(path, arrays, compressed=False):
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


def as_bfloat16(array):
    """What NumPy reads of a stored bfloat16 array: two bytes without a meaning."""
    return (array.view(np.uint32) >> 16).astype(np.uint16).view("V2")


def unchanged(model, before):
    """Whether each of a model's weights is what it was."""
    return all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
