"""Servers that answer what a test gives them, by both of TF Serving's APIs."""

import contextlib
import itertools
import json
import socket
import threading
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.serving_peer import RestHandler, RestServer

SERVICES = ("PredictionService/Predict", "ModelService/GetModelStatus")


@contextlib.contextmanager
def answering(api, *bodies, status=200):
    """Answer each request with the next of some bytes, and the last ones again; yields the URL."""
    lock, rest = threading.Lock(), itertools.chain(bodies, itertools.repeat(bodies[-1]))

    def next_body(*_):
        with lock:
            return next(rest)

    if api == "rest":

        class Handler(RestHandler):
            def answer(self, pattern, respond):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send(status, next_body())

        server = RestServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/models/pets"
        server.shutdown()
        server.server_close()
        return

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details):
            assert details.method.endswith(SERVICES)
            return grpc.unary_unary_rpc_method_handler(next_body)

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Handlers()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}/pets"
    server.stop(grace=None).wait()


@contextlib.contextmanager
def dripping(start, drip, seconds=0.02):
    """Send some bytes to who connects, then others, one after the other; yields the address."""
    done, listening = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def send(connection):
        with connection, contextlib.suppress(OSError):
            connection.sendall(start)
            for byte in itertools.cycle(drip):
                if done.wait(seconds):
                    return
                connection.sendall(bytes([byte]))

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=send, args=listening.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    done.set()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def encode(api, outputs):
    """The body of an answer with outputs for some images."""
    if api == "rest":
        columns = [np.asarray(value, object).tolist() for value in outputs.values()]
        rows = [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]
        return json.dumps({"predictions": rows}).encode()
    return message({name: tf.make_tensor_proto(value) for name, value in outputs.items()})


def message(tensors, version=None, **spec):
    """A `PredictResponse` in bytes."""
    answer = predict_pb2.PredictResponse()
    for name, tensor in tensors.items():
        answer.outputs[name].CopyFrom(tensor)
    if version is not None:
        answer.model_spec.version.value = version
    for name, value in spec.items():
        setattr(answer.model_spec, name, value)
    return answer.SerializeToString()


def outputs(count=2, **changes):
    """What an export answers to some images, with other values for some of the outputs."""
    right = {
        "logits": [np.log([0.2, 0.75, 0.05]).tolist()] * count,
        "probabilities": [[0.2, 0.75, 0.05]] * count,
        "top_k_classes": [[1, 0]] * count,
        "top_k_labels": [["dog", "cat"]] * count,
        "top_k_probabilities": [[0.75, 0.2]] * count,
    }
    return {**right, **changes}
