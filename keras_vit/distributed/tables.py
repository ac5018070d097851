"""Predictions as Arrow tables: lists of numbers, and null for images that cannot be decoded."""

import numpy as np
import pyarrow

TEXTS, NUMBERS = pyarrow.string(), pyarrow.float32()
_DEPTHS = {"probabilities": 1, "logits": 1, "features": 1, "attention_distance": 2}


def output_types(predictor):
    """Return a dictionary from the columns that a predictor adds to their Arrow types."""
    several = predictor.model.thresholds is not None
    types = {"prediction": _nested(TEXTS, several), "probability": _nested(NUMBERS, several)}
    types |= {name: _nested(NUMBERS, depth) for name, depth in _DEPTHS.items()}
    return {name: types[name] for name in predictor.outputs} | {"error": TEXTS}


def to_table(columns, types):
    """Return columns as a table.

    Args:
        columns: dictionary of arrays, as a `Predictor` returns them.
        types: dictionary from all of their names to Arrow types.

    Returns:
        A `pyarrow.Table` with the columns in the order of `types`.
    """
    is_broken = np.array([error is not None for error in columns["error"]], bool)
    arrays = {name: _array(columns[name], kind, is_broken) for name, kind in types.items()}
    return pyarrow.table(arrays)


def _array(values, kind, is_broken):
    if values.dtype == object:
        return pyarrow.array(values.tolist(), kind)
    if values.ndim == 1:
        return pyarrow.array(values, kind, mask=is_broken)
    return _lists(values, is_broken)


def _lists(values, is_broken=None):
    """Return an array `(rows, ...)` as lists, without a Python object for each number."""
    rows, length = values.shape[:2]
    inner = values.reshape(rows * length, *values.shape[2:])
    inner = _lists(inner) if inner.ndim > 1 else pyarrow.array(inner)
    offsets = pyarrow.array(range(0, rows * length + 1, length), pyarrow.int32())
    mask = None if is_broken is None else pyarrow.array(is_broken)
    return pyarrow.ListArray.from_arrays(offsets, inner, mask=mask)


def _nested(kind, depth):
    return _nested(pyarrow.list_(kind), depth - 1) if depth else kind
