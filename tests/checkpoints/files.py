"""Checkpoint files that are changed for a test."""

import json
import shutil

import numpy as np

from tests.reference import REFERENCE, case_path


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


def config_next_to(name, folder, config):
    """A copy of reference weights, or of a directory of them, next to another `config.json`.

    Of a directory, only the named settings of its own configuration are changed.
    """
    source = REFERENCE / name
    if source.is_dir():
        shutil.copytree(source, folder, dirs_exist_ok=True)
        config = {**json.loads((source / "config.json").read_text()), **config}
    else:
        shutil.copy(source, folder)
    (folder / "config.json").write_text(json.dumps(config))
    return folder if source.is_dir() else folder / source.name
