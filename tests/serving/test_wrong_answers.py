"""Answers that are not what the client asked for are one line that names the server."""

import json
import time

import numpy as np
import pytest

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2

from keras_vit.cli import main
from keras_vit.serving.client import Client
from keras_vit.serving.protocol import transports
from tests.fixtures.asking import BOTH
from tests.fixtures.canned import answering, dripping, encode, message, outputs
from tests.fixtures.images import encode as encode_image
from tests.fixtures.images import random_image

IMAGES = [b"one", b"two"]
NAN, INFINITY = float("nan"), float("inf")

OUTPUTS = {
    "answers to fewer images": outputs(1),
    "answers to more images": outputs(3),
    "no outputs": {},
    "NaN": outputs(logits=[[0.0, 1.0, 2.0], [0.0, NAN, 2.0]]),
    "infinity": outputs(logits=[[0.0, 1.0, -INFINITY]] * 2),
    "more than float32 can hold": outputs(logits=np.array([[0.0, 1.0, 1e300]] * 2)),
    "NaN among features": {"features": [[0.0, NAN]] * 2},
    "text for numbers": outputs(probabilities=[["0.2", "0.7", "0.1"]] * 2),
    "truth values for numbers": outputs(logits=[[True, False, True]] * 2),
    "numbers for text": outputs(top_k_labels=[[1, 0]] * 2),
    "fractions for classes": outputs(top_k_classes=[[1.0, 0.5]] * 2),
    "a class that is not there": outputs(top_k_classes=[[3, 0]] * 2),
    "a class below 0": outputs(top_k_classes=[[-1, 0]] * 2),
    "a class of more than 32 bits": outputs(top_k_classes=np.array([[2**40, 0]] * 2)),
    "a probability above 1": outputs(probabilities=[[0.2, 1.75, 0.05]] * 2),
    "a probability below 0": outputs(top_k_probabilities=[[0.75, -0.2]] * 2),
    "more logits than probabilities": outputs(logits=[[0.5, 2.0, -1.0, 0.0]] * 2),
    "fewer labels than classes": outputs(top_k_labels=[["dog"]] * 2),
    "nothing for an image": outputs(logits=np.zeros((2, 0), "float32")),
    "one number for an image": outputs(logits=[0.5, 2.0]),
    "a matrix for an image": outputs(logits=[[[0.5], [2.0], [-1.0]]] * 2),
    "numbers for flags": outputs(is_bad=[0, 1]),
    "several flags for an image": outputs(is_bad=[[False], [True]]),
    "probabilities whose sum is not 1": outputs(probabilities=[[0.2, 0.75, 0.15]] * 2),
    "probabilities of other logits": outputs(logits=[[0.0, 1.0, 2.0]] * 2),
    "probabilities of another image": outputs(
        probabilities=[[0.2, 0.75, 0.05], [0.75, 0.2, 0.05]], top_k_classes=[[1, 0], [0, 1]]
    ),
    "classes in another order": outputs(
        top_k_classes=[[0, 1]] * 2, top_k_probabilities=[[0.2, 0.75]] * 2
    ),
    "classes that are not the most likely": outputs(
        top_k_classes=[[1, 2]] * 2, top_k_probabilities=[[0.75, 0.05]] * 2
    ),
    "probabilities of other classes": outputs(top_k_probabilities=[[0.75, 0.1]] * 2),
    "a class twice": outputs(top_k_classes=[[1, 1]] * 2, top_k_probabilities=[[0.75, 0.75]] * 2),
    "two labels for a class": outputs(top_k_labels=[["dog", "cat"], ["cat", "dog"]]),
    "classes that are not the most likely by logits alone": {
        "logits": [[4.0, 0.0, 0.0]] * 2,
        "top_k_classes": [[2, 1]] * 2,
    },
    "probabilities of other logits than those alone": {
        "logits": [[4.0, 1.0, 0.0]] * 2,
        "top_k_classes": [[0, 1]] * 2,
        "top_k_probabilities": [[0.5, 0.4]] * 2,
    },
    "NaN for an image that is not flagged": outputs(
        logits=[[NAN] * 3, [0.0] * 3], is_bad=[False, True]
    ),
}


def rows(*values):
    return json.dumps({"predictions": list(values)}).encode()


def without(name):
    return {key: value[0] for key, value in outputs(1).items() if key != name}


FIRST = without("")
REST_ONLY = {
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


def tensor(value, **changes):
    made = tf.make_tensor_proto(value)
    for name, changed in changes.items():
        made.ClearField(name)
        if isinstance(changed, list):
            getattr(made, name).extend(changed)
        elif changed is not None:
            setattr(made, name, changed)
    return made


def shaped(*sizes, **options):
    """Two numbers that are said to have another shape."""
    made = tensor([[0.5], [2.0]], **options)
    made.tensor_shape.ClearField("dim")
    for size in sizes:
        made.tensor_shape.dim.add(size=size)
    return made


def of_unknown_rank():
    made = shaped()
    made.tensor_shape.unknown_rank = True
    return made


FLOATS = {"tensor_content": None}
GRPC_ONLY = {
    "no message": b"\xff\xff\xff",
    "no dtype": {"logits": tensor([[0.5], [2.0]], dtype=0)},
    "complex numbers": {"logits": tensor([[0.5j], [2.0]])},
    "an unknown dtype": {"logits": tensor([[0.5], [2.0]], dtype=77)},
    "values for another dtype": {"logits": shaped(2, 1, **FLOATS, int_val=[1, 2])},
    "fewer values than it says": {"logits": shaped(2, 1, **FLOATS, float_val=[1.0])},
    "more values than it says": {"logits": shaped(2, 1, **FLOATS, float_val=[1.0] * 3)},
    "no values": {"logits": shaped(2, 1, **FLOATS)},
    "half a value": {"logits": shaped(2, 1, tensor_content=b"1234567")},
    "a huge shape": {"logits": shaped(2, 2**40)},
    "a negative shape": {"logits": shaped(-2, -1)},
    "an unknown rank": {"logits": of_unknown_rank()},
    "no rank": {"logits": shaped(**FLOATS, float_val=[1.0])},
    "text that is not UTF-8": {"top_k_labels": tf.make_tensor_proto([[b"\xff"], [b"a"]])},
    "text in bytes of numbers": {"top_k_labels": shaped(2, 1, dtype=7)},
    "outputs for different numbers of images": {
        "logits": tensor([[0.5], [2.0]]),
        "probabilities": tensor([[1.0]]),
    },
}
GRPC_ONLY = {
    name: body if isinstance(body, bytes) else message(body) for name, body in GRPC_ONLY.items()
}

CASES = [
    *((api, name, encode(api, made)) for name, made in OUTPUTS.items() for api in ("rest", "grpc")),
    ("rest", "rows without outputs", rows({}, {})),
    *(("rest", name, body) for name, body in REST_ONLY.items()),
    *(("grpc", name, body) for name, body in GRPC_ONLY.items()),
]


def check_line(error, url):
    """Whether an error is one line that names the server."""
    assert url.removeprefix("grpc://").removesuffix("/pets") in str(error)
    assert len(str(error).splitlines()) == 1
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    "api, body", [case[::2] for case in CASES], ids=[f"{api}: {name}" for api, name, _ in CASES]
)
def test_a_wrong_answer_is_a_line(api, body):
    with answering(api, body) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError) as caught:
            client.predict(IMAGES)
        assert caught.type is OSError
        check_line(caught.value, url)


@BOTH
def test_right_answers(api):
    flagged = outputs(logits=[[NAN] * 3, *outputs(1)["logits"]], is_bad=[True, False])
    named = outputs(top_k_labels=[["dog\0", "猫"]] * 2)
    doubled = outputs(top_k_labels=[["crane", "crane"]] * 2)
    answers = (outputs(), flagged, named, {"features": [[1.0]] * 2}, doubled)
    bodies = [encode(api, answer) for answer in answers]
    with answering(api, *bodies) as url, Client(url, timeout=20) as client:
        found = client.predict(IMAGES)
        assert {name: array.dtype for name, array in found.items()} == {
            "logits": "float32",
            "probabilities": "float32",
            "top_k_classes": "int32",
            "top_k_labels": object,
            "top_k_probabilities": "float32",
        }
        for name, array in found.items():
            assert array.shape == np.shape(outputs()[name])
        assert client.predict(IMAGES)["is_bad"].tolist() == [True, False]
        # NumPy's strings would lose the zero.
        assert client.predict(IMAGES)["top_k_labels"].tolist() == [["dog\0", "猫"]] * 2
        assert client.predict(IMAGES)["features"].tolist() == [[1.0]] * 2
        assert client.predict(IMAGES)["top_k_labels"].tolist() == [["crane", "crane"]] * 2


OTHERS = {
    "other outputs": {"features": [[1.0, 2.0]]},
    "a flag more": outputs(1, is_bad=[False]),
    "a class more": outputs(
        1, logits=[[*outputs(1)["logits"][0], -99.0]], probabilities=[[0.2, 0.75, 0.05, 0.0]]
    ),
}


@BOTH
@pytest.mark.parametrize("name", OTHERS)
def test_answers_that_differ_from_request_to_request(name, api):
    bodies = [encode(api, made) for made in (outputs(1), OTHERS[name])]
    with answering(api, *bodies) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError, match="differ from request to request") as caught:
            client.predict(IMAGES, batch_size=1)
        check_line(caught.value, url)


@BOTH
def test_a_class_has_one_label_in_all_requests(api):
    bodies = [encode(api, outputs(1)), encode(api, outputs(1, top_k_labels=[["ant", "cat"]]))]
    with answering(api, *bodies) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError, match="must have one label for each class") as caught:
            client.predict(IMAGES, batch_size=1)
        check_line(caught.value, url)


@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary Redirect"])
def test_another_address_is_not_asked(status):
    with answering("rest", encode("rest", outputs(1))) as elsewhere:
        head = f"HTTP/1.1 {status}\r\nLocation: {elsewhere}:predict\r\nContent-Length: 0\r\n\r\n"
        with dripping(head.encode(), b" ") as address:
            client = Client(f"http://{address}/v1/models/pets", timeout=20)
            with client, pytest.raises(OSError, match=f"its status is {status[:3]} instead of 200"):
                client.predict(IMAGES[:1])


def test_another_version_of_the_model_takes_over():
    tensors = {name: tf.make_tensor_proto(value) for name, value in outputs(1).items()}
    bodies = [message(tensors, version) for version in (1, 2, 2, 2)]
    with answering("grpc", *bodies) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError, match=r"versions \[1, 2\] answered") as caught:
            client.predict(IMAGES, batch_size=1)
        check_line(caught.value, url)
        assert len(client.predict(IMAGES, batch_size=1)["logits"]) == 2
        other = Client(f"{url}/versions/1", timeout=20)
        with other, pytest.raises(OSError, match="version 2 answers, not 1"):
            other.predict(IMAGES[:1])


TENSORS = {name: tf.make_tensor_proto(value) for name, value in outputs(1).items()}


@pytest.mark.parametrize(
    "spec, received",
    [
        ({"name": "cats"}, "model cats answers, not pets"),
        ({"signature_name": "uint8"}, "signature uint8 answers, not serving_default"),
    ],
)
def test_another_model_or_signature_answers(spec, received):
    right = {"name": "pets", "signature_name": "serving_default"}
    bodies = message(TENSORS, **right), message(TENSORS, **{**right, **spec})
    with answering("grpc", *bodies) as url, Client(url, timeout=20) as client:
        client.predict(IMAGES[:1])
        with pytest.raises(OSError, match=received) as caught:
            client.predict(IMAGES[:1])
        check_line(caught.value, url)


@pytest.mark.parametrize("status", [201, 206])
def test_another_status_than_200(status):
    with (
        answering("rest", encode("rest", outputs()), status=status) as url,
        Client(url, timeout=20) as client,
    ):
        with pytest.raises(OSError, match=f"its status is {status} instead of 200") as caught:
            client.predict(IMAGES)
        check_line(caught.value, url)


@BOTH
def test_a_terminal_gets_no_control_characters(api, tmp_path, capsys):
    path = tmp_path / "a.png"
    path.write_bytes(encode_image(random_image()))
    named = outputs(1, top_k_labels=[["dog\x1b[2J", "cat\t猫"]])
    bodies = [encode(api, made) for made in (named, {"\x1b[2J": [[1.0]]})]
    with answering(api, *bodies) as url:
        main(["client", str(path), "--url", url, "--top", "2"])
        assert capsys.readouterr().out == f"{path}  dog\\x1b[2J 75.0%  cat\\t猫 20.0%\n"
        with pytest.raises(SystemExit):
            main(["client", str(path), "--url", url])
        assert "answers \\x1b[2J" in capsys.readouterr().err


def test_an_error_of_the_server_has_no_control_characters():
    with (
        answering("rest", b'{"error": "a\\u001b[2Jb"}', status=400) as url,
        Client(url, timeout=20) as client,
        pytest.raises(ValueError, match=r"a\\x1b\[2Jb$"),
    ):
        client.predict(IMAGES)


def states(*pairs):
    answer = get_model_status_pb2.GetModelStatusResponse()
    for version, state in pairs:
        answer.model_version_status.add(version=version, state=state)
    return answer.SerializeToString()


def json_states(*values):
    return json.dumps({"model_version_status": list(values)}).encode()


STATUSES = [
    ("rest", "", b"{}"),
    ("rest", "", b"[]"),
    ("rest", "", b'{"model_version_status": null}'),
    ("rest", "", b'{"model_version_status": {"version": "1", "state": "AVAILABLE"}}'),
    ("rest", "", json_states()),
    ("rest", "", json_states(None)),
    ("rest", "", json_states({"state": "AVAILABLE"})),
    ("rest", "", json_states({"version": "1"})),
    ("rest", "", json_states({"version": None, "state": "AVAILABLE"})),
    ("rest", "", json_states({"version": "new", "state": "AVAILABLE"})),
    ("rest", "", json_states({"version": 1.5, "state": "AVAILABLE"})),
    ("rest", "", json_states({"version": "9" * 5000, "state": "AVAILABLE"})),
    ("rest", "", json_states({"version": "1", "state": None})),
    ("rest", "", json_states({"version": "1", "state": ["AVAILABLE"]})),
    ("rest", "", json_states({"version": "1", "state": "READY"})),
    ("rest", "", json_states(*[{"version": "1", "state": "AVAILABLE"}] * 2)),
    ("rest", "/versions/2", json_states({"version": "1", "state": "AVAILABLE"})),
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


@BOTH
@pytest.mark.parametrize(
    "made", [outputs(2), outputs(1, logits=[[NAN] * 3]), {"logits": [[1.0, 2.0]], "more": [1]}]
)
def test_the_command_prints_a_line(made, api, tmp_path, capsys):
    path = tmp_path / "a.png"
    path.write_bytes(encode_image(random_image()))
    with answering(api, encode(api, made)) as url, pytest.raises(SystemExit) as exit_info:
        main(["client", str(path), "--url", url])
    assert exit_info.value.code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("keras-vit: error: ")
    check_line(printed.err, url)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# An empty SETTINGS frame, with which each HTTP/2 connection starts, and the head of a long frame.
SETTINGS, HEAD = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), bytes([0, 64, 0, 1, 4, 0, 0, 0, 1])
DRIPS = {
    "its headers": ("rest", b"HTTP/1.1 200 OK\r\nServer: ", b"x"),
    "many headers": ("rest", b"HTTP/1.1 200 OK\r\n", b"A:b\r\n"),
    "news that it goes on": ("rest", b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body": ("rest", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "a body without an end": ("rest", b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "chunks": ("rest", CHUNKED, b"1\r\n \r\n"),
    "an error": ("rest", b"HTTP/1.1 404 Not Found\r\n\r\n", b" "),
    "a frame": ("grpc", SETTINGS + HEAD, b"\0"),
    "settings": ("grpc", b"", SETTINGS),
}


@pytest.mark.parametrize("name", DRIPS)
def test_a_server_that_drips_is_given_up(name):
    api, start, drip = DRIPS[name]
    with dripping(start, drip) as address:
        url = f"http://{address}/v1/models/pets" if api == "rest" else f"grpc://{address}/pets"
        with Client(url, timeout=0.5) as client:
            for call in (client.status, lambda: client.predict(IMAGES)):
                begin = time.monotonic()
                with pytest.raises(TimeoutError, match="did not answer within 0.5") as caught:
                    call()
                check_line(caught.value, url)
                # The drip has no end.
                assert time.monotonic() - begin < 10


@BOTH
def test_an_answer_that_is_too_long(api, monkeypatch):
    monkeypatch.setattr(transports, "MAX_BYTES", 5000)
    body = encode(api, outputs(top_k_labels=[["dog" * 5000, "cat"]] * 2))
    with answering(api, body, encode(api, outputs())) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError, match="than") as caught:
            client.predict(IMAGES)
        check_line(caught.value, url)
        assert len(client.predict(IMAGES)["logits"]) == 2


@pytest.mark.parametrize("timeout", [0, -1, NAN, INFINITY, 1e300, "60", None, True])
def test_wrong_timeouts(timeout):
    with pytest.raises(ValueError, match="`timeout` must be positive .*Received: timeout="):
        Client("http://localhost:1/v1/models/pets", timeout=timeout)
    with Client("http://localhost:1/v1/models/pets") as client:
        with pytest.raises(ValueError, match="`timeout` must be positive"):
            client.wait_until_ready(timeout)
        if timeout is not None:
            with pytest.raises(ValueError, match="`timeout` must be positive"):
                client.status(timeout)


def test_bytes_of_numpy_are_refused():
    client = Client("http://localhost:1/v1/models/pets")
    with client, pytest.raises(ValueError, match="lose the zeros at their end"):
        client.predict(np.array([b"BM\0\0", b"BM"]))
