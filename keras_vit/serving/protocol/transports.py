"""Requests by TF Serving's two APIs, REST and gRPC."""

import base64
import concurrent.futures
import importlib
import json
import threading
import time

from keras_vit.core.text import printable
from keras_vit.serving.protocol import answers

# HTTP statuses in TF Serving's `http_server.cc`.
_UNAVAILABLE, _DEADLINE_EXCEEDED = 503, 504
# More than the answer of an export to 100 images with ImageNet-21k's classes, in either API.
MAX_BYTES = 2**28
_BYTES_AT_ONCE = 1024


class RequestError(Exception):
    """A server's message about a request that it refuses."""

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
        """Return the outputs for images, and `None`: the API does not return the version."""
        # The server decodes standard base64, but not the URL-safe alphabet.
        instances = [{"b64": base64.b64encode(image).decode("ascii")} for image in encoded]
        request = {"signature_name": signature, "instances": instances}
        answer = self._ask("POST", ":predict", self._timeout, json=request)
        return answers.from_json(answer, len(encoded)), None

    def status(self, timeout):
        answer = self._ask("GET", "", timeout or self._timeout)
        return answers.check_states(answers.states_from_json(answer), self._version)

    def _ask(self, method, verb, timeout, **request):
        errors, end = self._requests.exceptions, time.monotonic() + timeout
        session, url = self._session, self._url + verb
        try:
            code, content = within(
                timeout, lambda: _receive(session, end, method, url, timeout=timeout, **request)
            )
        except (errors.Timeout, TimeoutError) as error:
            # A thread may still be using the old session.
            self._session = self._requests.Session()
            raise _too_late(self._url, timeout) from error
        except errors.RequestException as error:
            if time.monotonic() > end:
                raise _too_late(self._url, timeout) from error
            raise ConnectionError(f"No server answers at {self._url}: {_cause(error)}") from error
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
            raise OSError(f"{self._url} is not of TF Serving: its answer is not JSON") from error


class Grpc:
    """TF Serving's gRPC API."""

    def __init__(self, address, name, version, timeout):
        self._grpc = require("grpc")
        apis = "tensorflow_serving.apis"
        self._predict_pb2 = require(f"{apis}.predict_pb2")
        self._status_pb2 = require(f"{apis}.get_model_status_pb2")
        options = [
            # By default a message has at most 4 MiB, and photographs are larger.
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", MAX_BYTES),
            # By default the time between two attempts to connect grows to two minutes.
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel = self._grpc.insecure_channel(address, options)
        predictions = require(f"{apis}.prediction_service_pb2_grpc")
        self._prediction = predictions.PredictionServiceStub(self._channel)
        self._model = require(f"{apis}.model_service_pb2_grpc").ModelServiceStub(self._channel)
        self._address, self._name = address, name
        self._version = int(version) if version else None
        self._timeout = timeout

    def close(self):
        self._channel.close()

    def predict(self, encoded, signature):
        """Return the outputs for images, and the model's version or `None`."""
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
            # A server may omit them.
            if answered not in (None, "") and asked not in (None, answered):
                raise answers.AnswerError(f"{what} {answered} answers, not {asked}")
        return answers.from_tensors(answer.outputs, len(encoded)), version

    def status(self, timeout):
        request = self._status_pb2.GetModelStatusRequest(model_spec=self._spec())
        answer = self._ask(self._model.GetModelStatus, request, timeout or self._timeout)
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
    """Import a module from a package of the extra `serving`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(
            "Requests to TF Serving need the packages requests and tensorflow-serving-api: "
            f"pip install 'keras-vit-zoo[serving]'. Received: no {name.partition('.')[0]}"
        ) from error


def within(seconds, function):
    """Call a function in a thread, and raise `TimeoutError` if it takes longer in all.

    The timeout of a socket applies to each read: a server that sends a byte now and then never
    exceeds it.
    """
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    # At exit, Python waits for the threads of an executor, but not for a daemon thread.
    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)


def _receive(session, end, method, url, **request):
    """Return the HTTP status and the body of an answer."""
    # A redirect leads to another server, and a redirected POST loses its images.
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


def _cause(error):
    """Return the operating system's message that caused an error, or the error's own message."""
    cause = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return _line(cause.strerror)
        # urllib3 keeps what it retried as the reason.
        cause = cause.__cause__ or cause.__context__ or getattr(cause, "reason", None)
    return _line(error)


def _too_late(address, timeout):
    return TimeoutError(f"The server at {address} did not answer within {timeout} seconds")


def _error_message(content):
    """Return the message of an error, which TF Serving escapes as in C: it may not be JSON."""
    text = content.decode("utf-8", "replace")
    try:
        return _line(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return _line(text)


def _line(message):
    """Return a message in one line."""
    return printable(" ".join(str(message).split())[:1000])
