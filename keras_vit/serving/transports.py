"""TF Serving's two APIs, as a client speaks them."""

import base64
import importlib
import json

import numpy as np

# HTTP statuses, by TF Serving's `http_server.cc`.
_UNAVAILABLE, _DEADLINE_EXCEEDED = 503, 504


class RequestError(Exception):
    """What a server says of a request that it refuses."""

    def __init__(self, message, is_unknown_model):
        super().__init__(message)
        self.is_unknown_model = is_unknown_model


class Rest:
    """TF Serving's REST API."""

    def __init__(self, server, name, version, timeout):
        self._requests = require("requests")
        self._session = self._requests.Session()
        self._url = f"{server}/v1/models/{name}" + (f"/versions/{version}" if version else "")
        self._timeout = timeout

    def close(self):
        self._session.close()

    def predict(self, encoded, signature):
        # Standard base64: the server decodes it, and not the URL-safe kind.
        instances = [{"b64": base64.b64encode(image).decode("ascii")} for image in encoded]
        request = {"signature_name": signature, "instances": instances}
        rows = self._ask("POST", ":predict", json=request)["predictions"]
        if not isinstance(rows[0], dict):
            # An only output comes without its name. Of exports that is what `features` returns.
            return {"features": _as_array(rows)}
        return {name: _as_array([row[name] for row in rows]) for name in rows[0]}

    def status(self, timeout=None):
        states = self._ask("GET", "", timeout)["model_version_status"]
        return {int(state["version"]): state["state"] for state in states}

    def _ask(self, method, verb, timeout=None, **request):
        errors, timeout = self._requests.exceptions, timeout or self._timeout
        try:
            answer = self._session.request(method, self._url + verb, timeout=timeout, **request)
        except errors.Timeout as error:
            raise _too_late(self._url, timeout) from error
        except errors.RequestException as error:
            raise ConnectionError(f"No server answers at {self._url}: {error}") from error
        code = answer.status_code
        if code == _DEADLINE_EXCEEDED:
            raise _too_late(self._url, timeout)
        if code in (400, 404):
            raise RequestError(_error_message(answer.text), code == 404)
        if not answer.ok:
            failure = ConnectionError if code == _UNAVAILABLE else OSError
            raise failure(
                f"The server at {self._url} failed with status {code}: "
                f"{_error_message(answer.text)}"
            )
        try:
            return json.loads(answer.content)
        except ValueError as error:
            raise OSError(f"{self._url} is not of TF Serving: it answers no JSON") from error


class Grpc:
    """TF Serving's gRPC API."""

    def __init__(self, address, name, version, timeout):
        self._grpc = require("grpc")
        apis = "tensorflow_serving.apis"
        self._predict_pb2 = require(f"{apis}.predict_pb2")
        self._status_pb2 = require(f"{apis}.get_model_status_pb2")
        # Photographs are larger than the 4 MiB that a message may have by default.
        limits = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        # By default a server that starts late is looked for every two minutes at last.
        options = [*limits, ("grpc.max_reconnect_backoff_ms", 1000)]
        self._channel = self._grpc.insecure_channel(address, options)
        self._prediction = require(f"{apis}.prediction_service_pb2_grpc").PredictionServiceStub(
            self._channel
        )
        self._model = require(f"{apis}.model_service_pb2_grpc").ModelServiceStub(self._channel)
        self._address, self._name, self._version = address, name, version
        self._timeout = timeout

    def close(self):
        self._channel.close()

    def predict(self, encoded, signature):
        import tensorflow as tf

        request = self._predict_pb2.PredictRequest(model_spec=self._spec(signature_name=signature))
        request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(encoded, tf.string))
        answer = self._ask(self._prediction.Predict, request)
        return {name: _as_text(tf.make_ndarray(value)) for name, value in answer.outputs.items()}

    def status(self, timeout=None):
        request = self._status_pb2.GetModelStatusRequest(model_spec=self._spec())
        states = self._ask(self._model.GetModelStatus, request, timeout).model_version_status
        name_of = self._status_pb2.ModelVersionStatus.State.Name
        return {state.version: name_of(state.state) for state in states}

    def _spec(self, **signature):
        spec = require("tensorflow_serving.apis.model_pb2").ModelSpec(name=self._name, **signature)
        if self._version:
            spec.version.value = int(self._version)
        return spec

    def _ask(self, method, request, timeout=None):
        codes, timeout = self._grpc.StatusCode, timeout or self._timeout
        try:
            return method(request, timeout=timeout)
        except self._grpc.RpcError as error:
            code, message = error.code(), error.details()
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
    """A module of what comes with the extra `serving`.

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


def _too_late(address, timeout):
    return TimeoutError(f"The server at {address} did not answer within {timeout} seconds")


def _error_message(text):
    """The words of an error, which TF Serving writes as C does: not always JSON."""
    try:
        return json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:1000]


def _as_array(values):
    """An array of what JSON said, in the types that the model has."""
    array = np.asarray(values)
    return array.astype({"f": "float32", "i": "int32"}.get(array.dtype.kind, array.dtype))


def _as_text(array):
    return np.char.decode(array.astype(bytes), "utf-8") if array.dtype == object else array
