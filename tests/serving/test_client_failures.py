"""A client of servers that are late, slow, absent or failing, or answer something else."""

import socket
import threading

import pytest
import tensorflow as tf

from keras_vit.cli import main
from keras_vit.serving.client import Client
from tests.fixtures.images import encode as encode_image
from tests.fixtures.images import random_image
from tests.fixtures.models import files
from tests.fixtures.serving.asking import BOTH, ask

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")
from tests.fixtures.serving.canned import answering, encode, message, outputs
from tests.fixtures.serving.peer import Peer

IMAGES = [b"one", b"two"]


@pytest.mark.slow
@BOTH
def test_waiting_for_a_server(api, models, server):
    """That starts when the client is already looking for it."""
    peer, done = Peer({}), threading.Event()
    peer.models = server.models
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        peer.rest_port, peer.grpc_port = (taken.getsockname()[1] for taken in (one, other))

    def serve():
        with peer.serve(peer.rest_port, peer.grpc_port):
            done.wait(60)

    late = threading.Timer(2, serve)
    with ask(peer, api) as client:
        with pytest.raises(ConnectionError, match="No server answers"):
            client.predict(IMAGES)
        with pytest.raises(TimeoutError, match="not ready after"):
            client.wait_until_ready(timeout=0.1)
        late.start()
        client.wait_until_ready(timeout=20)
        assert client.status() == {1: "AVAILABLE", 3: "AVAILABLE"}
    done.set()
    late.join()


@pytest.fixture(scope="module")
def server_of_zeros(tmp_path_factory):
    """A server of a model that is quick to write: its logits are 0."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def zeros(image_bytes):
        return {"logits": tf.zeros((tf.size(image_bytes), 3))}

    directory = tmp_path_factory.mktemp("zeros")
    tf.saved_model.save(tf.Module(), directory / "1", signatures=zeros)
    with Peer({"pets": directory}).serve() as peer:
        yield peer


@BOTH
def test_a_slow_server(api, server_of_zeros, monkeypatch):
    monkeypatch.setattr(server_of_zeros, "delay", 1)
    late = pytest.raises(TimeoutError, match="did not answer within 0.2 s")
    with ask(server_of_zeros, api, timeout=0.2) as client, late:
        client.predict(files(1))


@BOTH
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (tf.errors.InternalError, OSError),
        # The indices are those in a batch of several clients.
        (tf.errors.InvalidArgumentError, ValueError),
    ],
)
def test_a_server_that_fails(failure, expected, api, server_of_zeros, monkeypatch):
    def fail(signature, inputs):
        raise failure(None, None, "not decoded, by their index in the batch: [1 7]")

    monkeypatch.setattr(server_of_zeros, "predict", fail)
    with ask(server_of_zeros, api) as client, pytest.raises(expected) as raised:
        client.predict(files(2))
    # No `BadImageError`.
    assert raised.type is expected


@BOTH
def test_a_server_that_is_too_busy_is_asked_again(api, server_of_zeros, monkeypatch):
    answer, failures = server_of_zeros.predict, [1, 2]

    def fail_twice(*args):
        if failures:
            failures.pop()
            raise tf.errors.UnavailableError(None, None, "too many requests")
        return answer(*args)

    monkeypatch.setattr(server_of_zeros, "predict", fail_twice)
    with ask(server_of_zeros, api, timeout=20) as client:
        # By REST a single output has no name.
        (logits,) = client.predict(files(2)).values()
    assert logits.shape == (2, 3)
    assert not failures


@BOTH
def test_another_number_of_images_is_refused(api):
    refused = pytest.raises(OSError, match="must return 2 rows")
    with answering(api, encode(api, outputs(1))) as url, Client(url) as client, refused:
        client.predict(IMAGES)


def test_another_version_of_the_model_takes_over():
    tensors = {name: tf.make_tensor_proto(value) for name, value in outputs(1).items()}
    bodies = [message(tensors, version) for version in (1, 2, 2, 2)]
    with answering("grpc", *bodies) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError, match=r"use only one version. Received: \[1, 2\]"):
            client.predict(IMAGES, batch_size=1)
        assert len(client.predict(IMAGES, batch_size=1)["logits"]) == 2


@pytest.mark.parametrize("status", [201, 301, 307, 502])
def test_other_statuses_are_refused(status):
    """A redirect leads to another server, and a redirected POST loses its images."""
    answers = answering("rest", encode("rest", outputs(2)), status=status)
    with answers as url, Client(url) as client, pytest.raises(OSError, match=f"failed, {status}: "):
        client.predict(IMAGES)


@BOTH
def test_a_terminal_gets_no_control_characters(api, tmp_path, capsys):
    path = tmp_path / "a.png"
    path.write_bytes(encode_image(random_image()))
    named = outputs(1, top_k_labels=[["dog\x1b[2J", "cat\t猫"]])
    bodies = [encode(api, made) for made in (named, {"\x1b[2J": [[1.0]]})]
    with answering(api, *bodies) as url:
        main(["client", str(path), "--url", url])
        with pytest.raises(SystemExit):
            main(["client", str(path), "--url", url])
    printed = capsys.readouterr()
    assert "dog\\x1b[2J" in printed.out and "returns \\x1b[2J" in printed.err
    assert "\x1b" not in printed.out + printed.err
