"""Redirects, other models, slow servers, and what reaches the terminal."""

import time

import pytest

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")
import tensorflow as tf

from keras_vit.cli import main
from keras_vit.serving.client import Client
from keras_vit.serving.protocol import transports
from tests.fixtures.images import encode as encode_image
from tests.fixtures.images import random_image
from tests.fixtures.serving.asking import BOTH
from tests.fixtures.serving.canned import answering, check_line, dripping, encode, message, outputs

IMAGES = [b"one", b"two"]
NAN, INFINITY = float("nan"), float("inf")
TENSORS = {name: tf.make_tensor_proto(value) for name, value in outputs(1).items()}


@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary Redirect"])
def test_another_address_is_not_asked(status):
    with answering("rest", encode("rest", outputs(1))) as elsewhere:
        head = f"HTTP/1.1 {status}\r\nLocation: {elsewhere}:predict\r\nContent-Length: 0\r\n\r\n"
        with dripping(head.encode(), b" ") as address:
            client = Client(f"http://{address}/v1/models/pets", timeout=20)
            with client, pytest.raises(OSError, match=f"its status is {status[:3]} instead of 200"):
                client.predict(IMAGES[:1])


def test_another_version_of_the_model_takes_over():
    bodies = [message(TENSORS, version) for version in (1, 2, 2, 2)]
    with answering("grpc", *bodies) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError, match=r"versions \[1, 2\] answered") as caught:
            client.predict(IMAGES, batch_size=1)
        check_line(caught.value, url)
        assert len(client.predict(IMAGES, batch_size=1)["logits"]) == 2
        other = Client(f"{url}/versions/1", timeout=20)
        with other, pytest.raises(OSError, match="version 2 answers, not 1"):
            other.predict(IMAGES[:1])


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


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.png").write_bytes(encode_image(random_image()))
    return tmp_path / "a.png"


@BOTH
def test_a_terminal_gets_no_control_characters(api, path, capsys):
    named = outputs(1, top_k_labels=[["dog\x1b[2J", "cat\t猫"]])
    bodies = [encode(api, made) for made in (named, {"\x1b[2J": [[1.0]]})]
    with answering(api, *bodies) as url:
        main(["client", str(path), "--url", url, "--top", "2"])
        assert capsys.readouterr().out == f"{path}  dog\\x1b[2J 75.0%  cat\\t猫 20.0%\n"
        with pytest.raises(SystemExit):
            main(["client", str(path), "--url", url])
        assert "answers \\x1b[2J" in capsys.readouterr().err


@pytest.mark.parametrize(
    "body, status, error",
    [
        (b'{"error": "a\\u001b[2Jb"}', 400, (ValueError, r"a\\x1b\[2Jb$")),
        (b"<h1>\nBad Gateway</h1>", 502, (OSError, "failed with status 502: <h1> Bad")),
        (b"<h1>\nWelcome</h1>", 200, (OSError, "is not of TF Serving")),
        (encode("rest", outputs()), 201, (OSError, "its status is 201 instead of 200")),
        (encode("rest", outputs()), 206, (OSError, "its status is 206 instead of 200")),
    ],
)
def test_an_error_is_a_line_without_control_characters(body, status, error):
    with answering("rest", body, status=status) as url, Client(url, timeout=20) as client:
        for call in (client.status, lambda: client.predict(IMAGES)):
            with pytest.raises(error[0], match=error[1]) as caught:
                call()
            check_line(caught.value, url)


@BOTH
@pytest.mark.parametrize(
    "made", [outputs(2), outputs(1, logits=[[NAN] * 3]), {"logits": [[1.0, 2.0]], "more": [1]}]
)
def test_the_command_prints_a_line(made, api, path, capsys):
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
# Each takes two timeouts.
QUICK_DRIPS = ("its headers", "a body", "chunks", "a frame")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK_DRIPS else pytest.mark.large) for name in DRIPS],
)
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
        # The status has a default, `None`.
        for call in (client.wait_until_ready, client.status)[: 1 if timeout is None else 2]:
            with pytest.raises(ValueError, match="`timeout` must be positive"):
                call(timeout)
