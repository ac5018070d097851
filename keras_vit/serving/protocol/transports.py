"""TF Serving's two APIs, as a client speaks them."""

import base64
import concurrent.futures
import importlib
import json
import threading
import time

from keras_vit.core.text import printable
from keras_vit.serving.protocol import answers

# HTTP statuses, by TF Serving's `http_server.cc`.
_UNAVAILABLE, _DEADLINE_EXCEEDED = 503, 504
# More than the answer of an export to 100 images and ImageNet-21k's classes, in either API.
MAX_BYTES = 2**28
_BYTES_AT_ONCE = 1024


class RequestError(Exception):
    """What a server says of a request that it refuses."""

    def __init__(self, message, is_unknown_model):
        super().__init__(_line(message))
        self.is_unknown_model = is_unknown_model


class Rest:
    """TF Serving's REST API."""

    def __init__(self, server, name, version, timeout):
        self._requests = require("requests")
        self._session = self._requests.Session()
        self._url = f"{server}/v1/models/{name}" + (f"/versions/{version}" if version else "")
        self._version = int(version) if version else None
        self._timeout = timeout

    def close(self):
        self._session.close()

    def predict(self, encoded, signature):
        """Return the outputs for images, and `None`: the API does not name the version."""
        # Standard base64: the server decodes it, and not the URL-safe kind.
        instances = [{"b64": base64.b64encode(image).decode("ascii")} for image in encoded]
        request = {"signature_name": signature, "instances": instances}
        answer = self._ask("POST", ":predict", self._timeout, json=request)
        return answers.from_json(answer, len(encoded)), None

    def status(self, timeout=None):
        answer = self._ask("GET", "", self._timeout if timeout is None else timeout)
        return answers.check_states(answers.states_from_json(answer), self._version)

    def _ask(self, method, verb, timeout, **request):
        errors, end = self._requests.exceptions, time.monotonic() + timeout
        session, url = self._session, self._url + verb
        try:
            code, content = within(
                timeout, lambda: _receive(session, end, method, url, timeout=timeout, **request)
            )
        except (errors.Timeout, TimeoutError) as error:
            # A thread may still be using the old one.
            self._session = self._requests.Session()
            raise _too_late(self._url, timeout) from error
        except errors.RequestException as error:
            if time.monotonic() > end:
                raise _too_late(self._url, timeout) from error
            raise ConnectionError(f"No server answers at {self._url}: {_line(error)}") from error
        if code == _DEADLINE_EXCEEDED:
            raise _too_late(self._url, timeout)
        if code in (400, 404):
            raise RequestError(_error_message(content), code == 404)
        if code >= 400:
            failure = ConnectionError if code == _UNAVAILABLE else OSError
            raise failure(
                f"The server at {self._url} failed with status {code}: {_error_message(content)}"
            )
        if code != 200:
            raise answers.AnswerError(f"its status is {code} instead of 200")
        try:
            return json.loads(content, object_pairs_hook=answers.without_repeats)
        except (ValueError, RecursionError) as error:
            raise OSError(f"{self._url} is not of TF Serving: it answers no JSON") from error


class Grpc:
    """TF Serving's gRPC API."""

    def __init__(self, address, name, version, timeout):
        self._grpc = require("grpc")
        apis = "tensorflow_serving.apis"
        self._predict_pb2 = require(f"{apis}.predict_pb2")
        self._status_pb2 = require(f"{apis}.get_model_status_pb2")
        options = [
            # Photographs are larger than the 4 MiB that a message may have by default.
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", MAX_BYTES),
            # By default a server that starts late is looked for every two minutes at last.
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel = self._grpc.insecure_channel(address, options)
        self._prediction = require(f"{apis}.prediction_service_pb2_grpc").PredictionServiceStub(
            self._channel
        )
        self._model = require(f"{apis}.model_service_pb2_grpc").ModelServiceStub(self._channel)
        self._address, self._name = address, name
        self._version = int(version) if version else None
        self._timeout = timeout

    def close(self):
        self._channel.close()

    def predict(self, encoded, signature):
        """Return the outputs for images, and the version of the model if the server names it."""
        import tensorflow as tf

        request = self._predict_pb2.PredictRequest(model_spec=self._spec(signature_name=signature))
        request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(encoded, tf.string))
        answer = self._ask(self._prediction.Predict, request, self._timeout)
        spec = answer.model_spec
        version = spec.version.value if spec.HasField("version") else None
        for what, asked, answered in (
            ("version", self._version, version),
            ("model", self._name, spec.name),
            ("signature", signature or "serving_default", spec.signature_name),
        ):
            # A server may leave them out.
            if answered not in (None, "") and asked not in (None, answered):
                raise answers.AnswerError(f"{what} {answered} answers, not {asked}")
        return answers.from_tensors(answer.outputs, len(encoded)), version

    def status(self, timeout=None):
        request = self._status_pb2.GetModelStatusRequest(model_spec=self._spec())
        timeout = self._timeout if timeout is None else timeout
        answer = self._ask(self._model.GetModelStatus, request, timeout)
        names = {value: name for name, value in self._status_pb2.ModelVersionStatus.State.items()}
        states = answer.model_version_status
        pairs = [(state.version, names.get(state.state, state.state)) for state in states]
        return answers.check_states(pairs, self._version)

    def _spec(self, **signature):
        spec = require("tensorflow_serving.apis.model_pb2").ModelSpec(name=self._name, **signature)
        if self._version is not None:
            spec.version.value = self._version
        return spec

    def _ask(self, method, request, timeout):
        codes = self._grpc.StatusCode
        try:
            return method(request, timeout=timeout)
        except self._grpc.RpcError as error:
            code, message = error.code(), _line(error.details())
            if code == codes.DEADLINE_EXCEEDED:
                raise _too_late(self._address, timeout) from error
            if code == codes.UNAVAILABLE:
                raise ConnectionError(
                    f"No server answers at {self._address}, or it is too busy: {message}"
                ) from error
            if code in (codes.INVALID_ARGUMENT, codes.NOT_FOUND, codes.FAILED_PRECONDITION):
                raise RequestError(message, code == codes.NOT_FOUND) from error
            raise OSError(
                f"The server at {self._address} failed with {code.name}: {message}"
            ) from error


def require(name):
    """Import a module of what comes with the extra `serving`.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(
            "Requests to TF Serving need the packages requests and tensorflow-serving-api: "
            f"pip install 'keras-vit[serving]'. Received: no {name.partition('.')[0]}"
        ) from error


def within(seconds, function):
    """Return what a function returns, unless it takes too long.

    The limit of sockets is for each read: a server that sends a byte now and then never exceeds it.

    Args:
        seconds: how long the function may take in all.
        function: has no arguments; its thread is left alone when it takes longer.

    Raises:
        TimeoutError: if it takes longer.

    Example:
    >>> from keras_vit.serving.protocol.transports import within
    >>> within(60, lambda: 1 + 1)
    2
    """
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    # Python waits at its end for the threads of an executor, but not for this one.
    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)


def _receive(session, end, method, url, **request):
    """Return the HTTP status and the body of an answer."""
    # Another address is not the server that was asked, and a redirected POST loses its images.
    with session.request(method, url, stream=True, allow_redirects=False, **request) as answer:
        content = bytearray()
        for chunk in answer.iter_content(_BYTES_AT_ONCE):
            content += chunk
            if len(content) > MAX_BYTES:
                raise answers.AnswerError(
                    f"it is longer than {MAX_BYTES} bytes; ask for fewer images at once"
                )
            if time.monotonic() > end:
                raise TimeoutError
        return answer.status_code, content


def _too_late(address, timeout):
    return TimeoutError(f"The server at {address} did not answer within {timeout} seconds")


def _error_message(content):
    """The words of an error, which TF Serving writes as C does: not always JSON."""
    text = content.decode("utf-8", "replace")
    try:
        return _line(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return _line(text)


def _line(message):
    """A message in one line."""
    return printable(" ".join(str(message).split())[:1000])
