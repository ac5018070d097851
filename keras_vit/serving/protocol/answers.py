"""Answers of TF Serving as NumPy arrays, checked to be what was asked for."""

import math
import reprlib

import numpy as np

from keras_vit.serving.protocol.contradictions import TOLERANCE, find_contradiction

# What the outputs of an export are; other models may have others.
_NUMBERS = ("logits", "probabilities", "top_k_probabilities", "features")
_PROBABILITIES = ("probabilities", "top_k_probabilities")
# Where a `TensorProto` has the values of each dtype.
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
    """An answer that is not what was asked for; the message says why."""


def from_json(answer, count):
    """Convert the answer to a REST request in row form.

    Args:
        answer: what the JSON means.
        count: number of images in the request.

    Returns:
        A dictionary of NumPy arrays `(count, ...)`.

    Raises:
        AnswerError: if it is anything else.
    """
    rows = _field(answer, "predictions", list)
    _check_count("`predictions`", len(rows), count)
    named = [isinstance(row, dict) for row in rows]
    if not any(named):
        # A single output comes without its name. In an export that is what `features` returns.
        columns = {"features": rows}
    elif all(named) and all(row.keys() == rows[0].keys() for row in rows):
        columns = {name: [row[name] for row in rows] for name in rows[0]}
    else:
        raise AnswerError("the outputs differ from image to image")
    return check_outputs({name: _from_list(name, rows) for name, rows in columns.items()}, count)


def from_tensors(tensors, count):
    """Convert the answer to a gRPC request.

    Args:
        tensors: dictionary from names to `TensorProto`s.
        count: number of images in the request.

    Returns:
        A dictionary of NumPy arrays `(count, ...)`.

    Raises:
        AnswerError: if it is anything else.
    """
    return check_outputs({name: _from_tensor(name, tensors[name]) for name in tensors}, count)


def check_outputs(outputs, count):
    """Check the outputs for some images, and convert them to the dtypes that an export has.

    Numbers must be finite but for images that are flagged as bad.

    Args:
        outputs: dictionary of NumPy arrays.
        count: number of images.

    Returns:
        A dictionary of NumPy arrays `(count, ...)`.

    Raises:
        AnswerError: if an output is for another number of images, has another dtype or shape than
            an export's, has values that are no results, or contradicts another output.
    """
    if not outputs:
        raise AnswerError("it has no outputs")
    outputs = {name: _typed(name, array) for name, array in outputs.items()}
    for name, array in outputs.items():
        _check_count(f"`{name}`", len(array) if array.ndim else 0, count)
    is_good = ~outputs.get("is_bad", np.zeros(count, bool))
    for name, array in outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array[is_good]).all():
            raise AnswerError(f"`{name}` has values that are not finite")
        if name in _PROBABILITIES and np.any(abs(array[is_good] - 0.5) > 0.5 + TOLERANCE):
            raise AnswerError(f"`{name}` has values that are no probabilities")
    _check_contradictions(outputs)
    return outputs


def join(parts, versions):
    """Join the outputs for the images of several requests.

    Args:
        parts: list of dictionaries of `check_outputs`.
        versions: set of the model's versions that answered, as far as they are known.

    Returns:
        A dictionary of NumPy arrays.

    Raises:
        AnswerError: if they differ in kind, or another version took over in between.
    """
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
    """Make a dictionary of the pairs of a JSON object; for `object_pairs_hook`.

    Raises:
        AnswerError: if a key is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise AnswerError(f"it has a key twice: {_shown([key for key, _ in pairs])}")
    return found


def states_from_json(answer):
    """Read the version and state of each version of a model from the answer by REST.

    Raises:
        AnswerError: if it is anything else.
    """
    pairs = []
    for state in _field(answer, "model_version_status", list):
        version = state.get("version") if isinstance(state, dict) else None
        # TF Serving writes 64 bits as text, as JSON does for protocol buffers.
        if not (str(version).isdecimal() and len(str(version)) < 20):
            raise AnswerError(f"a version must be a number, not {_shown(version)}")
        pairs.append((int(version), state.get("state")))
    return pairs


def check_states(pairs, version):
    """Check the states of a model's versions, and return them as a dictionary.

    Args:
        pairs: list of versions and their states.
        version: the version that was asked for, `None` for all.

    Raises:
        AnswerError: if there are none, or a version or state is not one.
    """
    states = dict(pairs)
    unknown = [state for state in states.values() if state not in _STATES]
    if unknown:
        raise AnswerError(f"a state must be one of {', '.join(_STATES)}, not {_shown(unknown[0])}")
    if not states or len(states) < len(pairs) or version not in (None, *states):
        raise AnswerError(f"it must tell the state of each version once, not {_shown(pairs)}")
    return states


def _field(answer, name, kind):
    if isinstance(answer, dict) and answer.get("error"):
        raise AnswerError(f"it has an `error`: {_shown(answer['error'])}")
    if not isinstance(answer, dict) or not isinstance(answer.get(name), kind):
        raise AnswerError(f"it must have a list `{name}`: {_shown(answer)}")
    return answer[name]


def _check_count(what, found, count):
    if found != count:
        raise AnswerError(f"{what} must be for {count} images, and is for {found}")


def _from_list(name, values):
    """Return an array of what JSON lists have, in the dtypes that models have."""
    try:
        array = np.array(values, object)
        kinds = {type(value) for value in array.flat}
        if kinds == {str}:
            # Half of a surrogate pair is no character.
            "".join(array.flat).encode()
            return array
        if kinds in ({bool}, {int}):
            return array.astype(kinds.pop())
        if kinds and kinds <= {int, float}:
            # What float32 cannot hold becomes infinite.
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
    # `make_ndarray` would repeat the last value, or take zeros.
    if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0 or found != math.prod(shape):
        raise AnswerError(f"`{name}` has {found:g} values for the shape {shape}")
    array = tf.make_ndarray(tensor)
    if dtype != "string":
        return array
    try:
        # Neither NumPy's bytes nor its strings keep zeros at their end, so they stay Python's.
        return np.asarray(np.frompyfunc(bytes.decode, 1, 1)(array), object)
    except UnicodeDecodeError as error:
        raise AnswerError(f"`{name}` must be in UTF-8") from error


def _typed(name, array):
    """Convert an output to the dtype that an export's output of that name has."""
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
    count = len(next(iter(outputs.values())))
    contradiction = find_contradiction(outputs, ~outputs.get("is_bad", np.zeros(count, bool)))
    if contradiction:
        raise AnswerError(contradiction)


def _shown(value):
    """Shorten a value of any kind to a line."""
    return " ".join(reprlib.repr(value).split())
