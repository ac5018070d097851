"""Answers of TF Serving as NumPy arrays, checked against the request."""

import math
import reprlib

import numpy as np

from keras_vit.serving.protocol.contradictions import TOLERANCE, find_contradiction, is_good

# Outputs of an export; other models may have others.
_NUMBERS = ("logits", "probabilities", "top_k_probabilities", "features")
_PROBABILITIES = ("probabilities", "top_k_probabilities")
# Fields of a `TensorProto` that hold the values of each dtype.
_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int32": "int_val",
    "int64": "int64_val",
    "uint8": "int_val",
    "bool": "bool_val",
    "string": "string_val",
}
# The states of a version by `ModelVersionStatus`.
_STATES = ("UNKNOWN", "START", "LOADING", "AVAILABLE", "UNLOADING", "END")


class AnswerError(Exception):
    """An answer that does not fit the request; the message says why."""


def from_json(answer, count):
    """Convert the decoded JSON that answers a REST request in row form with `count` images."""
    rows = _list_of(answer, "predictions")
    _check_count("`predictions`", len(rows), count)
    named = [isinstance(row, dict) for row in rows]
    if not any(named):
        # A single output has no name. The only such output of an export is `features`.
        columns = {"features": rows}
    elif all(named) and all(row.keys() == rows[0].keys() for row in rows):
        columns = {name: [row[name] for row in rows] for name in rows[0]}
    else:
        raise AnswerError("the outputs differ from image to image")
    return check_outputs({name: _from_list(name, rows) for name, rows in columns.items()}, count)


def from_tensors(tensors, count):
    """Convert the `TensorProto`s that answer a gRPC request with `count` images."""
    return check_outputs({name: _from_tensor(name, tensors[name]) for name in tensors}, count)


def check_outputs(outputs, count):
    """Check outputs, and convert them to arrays `(count, ...)` with the dtypes of an export.

    Numbers must be finite, except for images that are flagged as bad.
    """
    if not outputs:
        raise AnswerError("it has no outputs")
    outputs = {name: _typed(name, array) for name, array in outputs.items()}
    for name, array in outputs.items():
        _check_count(f"`{name}`", len(array) if array.ndim else 0, count)
    good = is_good(outputs)
    for name, array in outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array[good]).all():
            raise AnswerError(f"`{name}` has values that are not finite")
        if name in _PROBABILITIES and np.any(abs(array[good] - 0.5) > 0.5 + TOLERANCE):
            raise AnswerError(f"`{name}` has values that are not probabilities")
    _check_contradictions(outputs)
    return outputs


def join(parts, versions):
    """Join the outputs for several requests, which these known versions answered."""
    if len(versions) > 1:
        raise AnswerError(f"versions {sorted(versions)} answered, one after the other")
    kinds = [
        {name: (array.dtype, array.shape[1:]) for name, array in part.items()} for part in parts
    ]
    if any(kind != kinds[0] for kind in kinds):
        raise AnswerError("the outputs differ from request to request")
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    _check_contradictions(outputs)
    return outputs


def without_repeats(pairs):
    """Make a dictionary from the pairs of a JSON object; for `object_pairs_hook`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise AnswerError(f"it has a key twice: {_shown([key for key, _ in pairs])}")
    return found


def states_from_json(answer):
    """Read the version and state of each version of a model from the answer by REST."""
    pairs = []
    for state in _list_of(answer, "model_version_status"):
        version = state.get("version") if isinstance(state, dict) else None
        # The JSON form of protocol buffers writes 64-bit integers as text.
        if not (str(version).isdecimal() and len(str(version)) < 20):
            raise AnswerError(f"a version must be a number, not {_shown(version)}")
        pairs.append((int(version), state.get("state")))
    return pairs


def check_states(pairs, version):
    """Check the states of a model's versions, and return them as a dictionary.

    `version` is the one that was asked for, `None` for all.
    """
    states = dict(pairs)
    unknown = [state for state in states.values() if state not in _STATES]
    if unknown:
        raise AnswerError(f"a state must be one of {', '.join(_STATES)}, not {_shown(unknown[0])}")
    if not states or len(states) < len(pairs) or version not in (None, *states):
        raise AnswerError(f"it must have the state of each version once, not {_shown(pairs)}")
    return states


def _list_of(answer, name):
    if isinstance(answer, dict) and answer.get("error"):
        raise AnswerError(f"it has an `error`: {_shown(answer['error'])}")
    if not isinstance(answer, dict) or not isinstance(answer.get(name), list):
        raise AnswerError(f"it must have a list `{name}`: {_shown(answer)}")
    return answer[name]


def _check_count(what, found, count):
    if found != count:
        raise AnswerError(f"{what} must be for {count} images, and is for {found}")


def _from_list(name, values):
    """Convert JSON lists to an array of a dtype that models have."""
    try:
        array = np.array(values, object)
        kinds = {type(value) for value in array.flat}
        if kinds == {str}:
            # Half of a surrogate pair is not a character.
            "".join(array.flat).encode()
            return array
        if kinds in ({bool}, {int}):
            return array.astype(kinds.pop())
        if kinds and kinds <= {int, float}:
            # Values that float32 cannot represent become infinite.
            with np.errstate(over="ignore"):
                return array.astype("float64").astype("float32")
        raise ValueError(_shown(values))
    except (ValueError, OverflowError) as error:
        raise AnswerError(
            f"`{name}` must be an array of numbers, text or truth values: {_shown(str(error))}"
        ) from error


def _from_tensor(name, tensor):
    import tensorflow as tf

    dtypes = {tf.as_dtype(dtype).as_datatype_enum: dtype for dtype in _FIELDS}
    if tensor.dtype not in dtypes:
        raise AnswerError(f"`{name}` must have one of the dtypes {', '.join(_FIELDS)}")
    dtype, shape = dtypes[tensor.dtype], [axis.size for axis in tensor.tensor_shape.dim]
    found = len(getattr(tensor, _FIELDS[dtype]))
    if tensor.tensor_content and dtype != "string":
        found = len(tensor.tensor_content) / np.dtype(dtype).itemsize
    # `make_ndarray` would repeat the last value, or fill in zeros.
    if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0 or found != math.prod(shape):
        raise AnswerError(f"`{name}` has {found:g} values for the shape {shape}")
    array = tf.make_ndarray(tensor)
    if dtype != "string":
        return array
    try:
        # NumPy's bytes and strings lose zeros at their end, so Python's are used.
        return np.asarray(np.frompyfunc(bytes.decode, 1, 1)(array), object)
    except UnicodeDecodeError as error:
        raise AnswerError(f"`{name}` must be in UTF-8") from error


def _typed(name, array):
    """Convert an output to the dtype of an export's output of that name."""
    kind, rank = array.dtype.kind, 2
    if name in _NUMBERS:
        expected, is_right, dtype = "numbers", kind in "fiu", "float32"
    elif name == "top_k_classes":
        is_right = kind in "iu" and np.all((array >= 0) & (array < 2**31))
        expected, dtype = "numbers of classes", "int32"
    elif name == "top_k_labels":
        expected, is_right, dtype = "text", kind == "O", object
    elif name == "is_bad":
        expected, is_right, dtype, rank = "truth values", kind == "b", bool, 1
    else:
        return array
    if not is_right or array.ndim != rank or not array.size:
        shape = "(images, ...)" if rank == 2 else "(images,)"
        raise AnswerError(f"`{name}` must be {expected} of the shape {shape}")
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _check_contradictions(outputs):
    contradiction = find_contradiction(outputs)
    if contradiction:
        raise AnswerError(contradiction)


def _shown(value):
    """Return a short representation of any value in one line."""
    return " ".join(reprlib.repr(value).split())
