"""Malformed answers, by each API."""

import json

import numpy as np
import pytest

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_status_pb2

from keras_vit.serving.client import Client
from tests.fixtures.serving.canned import answering, check_line, check_refused, message, outputs


def rows(*values):
    return json.dumps({"predictions": list(values)}).encode()


def without(name):
    return {key: value[0] for key, value in outputs(1).items() if key != name}


FIRST = without("")
BY_REST = {
    "rows without outputs": rows({}, {}),
    "nothing": b"",
    "no JSON": b"<h1>\nwelcome</h1>",
    "half of it": rows(FIRST, FIRST)[:-9],
    "no UTF-8": rows(FIRST, FIRST).replace(b"dog", b"d\xff\xfeg"),
    "JSON that is nested deeply": b"[" * 100_000,
    "a list": b"[]",
    "null": b"null",
    "a number": b"7",
    "no predictions": b"{}",
    "an error": b'{"error": "it is\\n out of order"}',
    "an error and predictions": rows(FIRST, FIRST).replace(b"{", b'{"error": "out of order", ', 1),
    "predictions of null": b'{"predictions": null}',
    "predictions twice": rows(FIRST, FIRST)[:-1] + b', "predictions": []}',
    "an object of predictions": b'{"predictions": {"logits": [[1.0], [2.0]]}}',
    "text of predictions": b'{"predictions": "ab"}',
    "no rows": rows(),
    "null for a row": rows(FIRST, None),
    "null for each row": rows(None, None),
    "numbers and names": rows(FIRST, [1.0, 2.0]),
    "a field that is missing": rows(FIRST, without("logits")),
    "a field that is new": rows(without("logits"), FIRST),
    "null for a field": rows(FIRST, {**FIRST, "logits": None}),
    "null for a number": rows(FIRST, {**FIRST, "logits": [0.5, None, -1.0]}),
    "an object for a number": rows(FIRST, {**FIRST, "logits": [0.5, {}, -1.0]}),
    "a truth value for a number": rows(FIRST, {**FIRST, "logits": [0.5, True, -1.0]}),
    "text among numbers": rows(FIRST, {**FIRST, "logits": [0.5, "2.0", -1.0]}),
    "ragged rows": rows(FIRST, {**FIRST, "logits": [0.5, 2.0]}),
    "rows that are ragged inside": rows([[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0]]),
    "rows of different depth": rows([1.0, 2.0], [[1.0], [2.0]]),
    "numbers and lists": rows([1.0, 2.0], 3.0),
    "a number of 400 digits": rows([10**400], [1]),
    "a number of 5,000 digits": b'{"predictions": [[' + b"1" * 5000 + b"], [1]]}",
    "half of a character": rows(FIRST, FIRST).replace(b"dog", b"\\ud800"),
    "a single text": rows("dog", "cat"),
}


def tensor(*sizes, **fields):
    """Return a `TensorProto` of float32 with these fields, which need not fit each other."""
    shape = {"dim": [{"size": size} for size in sizes]}
    return tensor_pb2.TensorProto(**{"dtype": 1, "tensor_shape": shape, **fields})


TWO = {"tensor_content": np.float32([0.5, 2.0]).tobytes()}
BY_GRPC = {
    "no dtype": {"logits": tensor(2, 1, **TWO, dtype=0)},
    "complex numbers": {"logits": tf.make_tensor_proto([[0.5j], [2.0]])},
    "an unknown dtype": {"logits": tensor(2, 1, **TWO, dtype=77)},
    "values for another dtype": {"logits": tensor(2, 1, int_val=[1, 2])},
    "fewer values than it says": {"logits": tensor(2, 1, float_val=[1.0])},
    "more values than it says": {"logits": tensor(2, 1, float_val=[1.0] * 3)},
    "no values": {"logits": tensor(2, 1)},
    "half a value": {"logits": tensor(2, 1, tensor_content=b"1234567")},
    "a huge shape": {"logits": tensor(2, 2**40, **TWO)},
    "a negative shape": {"logits": tensor(-2, -1, **TWO)},
    "an unknown rank": {"logits": tensor(**TWO, tensor_shape={"unknown_rank": True})},
    "no rank": {"logits": tensor(float_val=[1.0])},
    "text that is not UTF-8": {"top_k_labels": tf.make_tensor_proto([[b"\xff"], [b"a"]])},
    "text in bytes of numbers": {"top_k_labels": tensor(2, 1, **TWO, dtype=7)},
    "other numbers of images": {"logits": tensor(2, 1, **TWO), "features": tensor(1, 2, **TWO)},
}
CASES = [
    *(pytest.param("rest", body, id=name) for name, body in BY_REST.items()),
    *(pytest.param("grpc", message(made), id=name) for name, made in BY_GRPC.items()),
    pytest.param("grpc", b"\xff\xff\xff", id="no message"),
]


@pytest.mark.parametrize("api, body", CASES)
def test_a_malformed_answer(api, body):
    check_refused(api, body)


def states(*pairs):
    made = [{"version": version, "state": state} for version, state in pairs]
    answer = get_model_status_pb2.GetModelStatusResponse(model_version_status=made)
    return answer.SerializeToString()


def json_states(*values):
    return json.dumps({"model_version_status": list(values)}).encode()


FINE = {"version": "1", "state": "AVAILABLE"}
STATUSES = [
    *(("rest", "", body) for body in (b"{}", b"[]", b'{"model_version_status": null}')),
    ("rest", "", json.dumps({"model_version_status": FINE}).encode()),
    ("rest", "", json_states()),
    *(("rest", "", json_states(one)) for one in (None, {"state": "AVAILABLE"}, {"version": "1"})),
    *(("rest", "", json_states({**FINE, "version": v})) for v in (None, "new", 1.5, "9" * 5000)),
    *(("rest", "", json_states({**FINE, "state": s})) for s in (None, ["AVAILABLE"], "READY")),
    ("rest", "", json_states(FINE, FINE)),
    ("rest", "/versions/2", json_states(FINE)),
    ("grpc", "", b"\xff\xff\xff"),
    ("grpc", "", states()),
    ("grpc", "", states((1, 77))),
    ("grpc", "", states((1, 30), (1, 30))),
    ("grpc", "/versions/2", states((1, 30))),
]


@pytest.mark.parametrize("api, version, body", STATUSES)
def test_a_wrong_status_is_a_line(api, version, body):
    with answering(api, body) as url, Client(url + version, timeout=20) as client:
        with pytest.raises(OSError) as caught:
            client.status()
        assert caught.type is OSError
        check_line(caught.value, url)
        with pytest.raises(TimeoutError, match="is not ready after 0.1 seconds: "):
            client.wait_until_ready(0.1)
