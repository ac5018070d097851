"""`Client`: query a model in TF Serving, over REST or gRPC."""

import base64
import contextlib
import pathlib
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.core.arguments import check_integer
from keras_vit.serving.formats import requiring_extra

_REST_URL = re.compile(r"(https?://[^/\s]+)/v1/models/([^/:\s]+)(?:/versions/([0-9]{1,18}))?/?")
_GRPC_URL = re.compile(r"grpc://([^/\s]+)/([^/:\s]+)(?:/versions/([0-9]{1,18}))?/?")
# An export's error message lists the indices of bad images; after the first 100 it has "...".
_BAD_IMAGES = re.compile(r"index in the batch:\W+([0-9 ]+)(\.\.\.)?")
_SECONDS_BETWEEN_ATTEMPTS = 0.2
# Retries are safe: a prediction changes nothing on the server.
_RETRIES = 3
_GRPC_CONFIG = """
{"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.2s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"]
}}]}
"""
# The dtypes of an export's outputs, by the NumPy kind of the values read from JSON.
_DTYPES = {"f": "float32", "i": "int32", "U": object}


class BadImageError(ValueError):
    """Images that the server cannot decode.

    Args:
        message: the error message.
        positions: list of the positions of bad images in the request, at most 100.
    """

    def __init__(self, message: str, positions: Sequence[int]) -> None:
        super().__init__(message)
        self.positions = positions


class Client(contextlib.AbstractContextManager):
    """Query a model that TF Serving serves. Each thread needs its own client.

    Files are sent unchanged: unlike `keras-vit client`, this class does not turn photographs
    upright. If the server is unreachable or busy, the request is retried up to three times.

    Args:
        url: `http://HOST:8501/v1/models/NAME` for REST, `grpc://HOST:8500/NAME` for gRPC. Append
            `/versions/N` for a version other than the newest.
        timeout: seconds to wait for a response. Over REST, this limits the connection and each
            read separately.

    Raises:
        ValueError: if the URL has another form.
        ImportError: if a package is missing.

    Reference:
        https://www.tensorflow.org/tfx/serving/api_rest

    Example:
    >>> from keras_vit.serving.client import Client
    >>> with Client("http://localhost:8501/v1/models/pets", timeout=5) as client:
    ...     client.predict(["cat.jpg"])
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'cat.jpg'
    """

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        for pattern, transport in ((_REST_URL, _Rest), (_GRPC_URL, _Grpc)):
            if parts := pattern.fullmatch(str(url)):
                with requiring_extra("serving"):
                    self._transport = transport(*parts.groups(), timeout)
                self.url = str(url)
                return
        raise ValueError(
            "`url` must be 'http://HOST:PORT/v1/models/NAME' or 'grpc://HOST:PORT/NAME', with an "
            f"optional '/versions/N' at the end. Received: url={url!r}"
        )

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def predict(self, images: Any, batch_size: int = 32, signature: str = "serving_default") -> Any:
        """Return the outputs of a signature for images.

        Args:
            images: list of paths of JPEG, PNG or WebP files, or of their bytes. The EXIF
                orientation is ignored; `keras_vit.serving.image_files.read_image` returns the
                bytes of an upright image.
            batch_size: number of images per request.
            signature: name of a signature that takes `image_bytes`.

        Returns:
            A dictionary of NumPy arrays `(images, ...)`. An output of text is an array of Python
            strings.

        Raises:
            BadImageError: a `ValueError`, if the server cannot decode an image.
            ValueError: if the server does not have the model or rejects the request.
            OSError: if a file cannot be read or the server fails; a `ConnectionError` if there is
                no server, a `TimeoutError` if the server does not respond in time.
        """
        check_integer("batch_size", batch_size, minimum=1)
        answers, versions = [], set()
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size]
            try:
                outputs, version = self._transport.predict(list(map(_read, batch)), signature)
            except _RefusedError as error:
                raise _public_error(error, batch, start) from error
            wrong = {n: len(x) for n, x in outputs.items() if len(x) != len(batch)}
            if wrong or not outputs:
                raise OSError(f"{self.url} must return {len(batch)} rows. Received: {wrong}")
            answers.append(outputs)
            versions.add(version)
        if len(versions) > 1:
            raise OSError(f"{self.url} must use only one version. Received: {sorted(versions)}")
        return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}

    def status(self) -> Any:
        """Return the state of each version of the model: `{1: "AVAILABLE"}`.

        Raises:
            ValueError: if the server does not have the model.
            OSError: as in `predict`.

        Reference:
            `ModelVersionStatus` of TF Serving's `get_model_status.proto`.
        """
        return self._transport.status()

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait until a version of the model is available.

        Args:
            timeout: seconds after which to give up; the last request may take longer.

        Raises:
            TimeoutError: if no version is available by then; the message has the last response.
        """
        end = time.monotonic() + timeout
        while True:
            try:
                last = self.status()
                if "AVAILABLE" in last.values():
                    return
            except (ValueError, OSError) as error:
                # The server may be starting, or loading the model.
                last = error
            if time.monotonic() > end:
                raise TimeoutError(
                    f"The model at {self.url} is not ready after {timeout} seconds: {last}"
                )
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)


class _RefusedError(ValueError):
    """The server rejected a request."""


class _Rest:
    """TF Serving's REST API."""

    def __init__(self, server, name, version, timeout):
        import requests
        import urllib3

        self._requests, self._timeout = requests, timeout
        self._url = f"{server}/v1/models/{name}" + (f"/versions/{version}" if version else "")
        self._session = requests.Session()
        retries = urllib3.Retry(
            _RETRIES,
            read=False,
            status_forcelist=(503,),
            allowed_methods=None,
            backoff_factor=_SECONDS_BETWEEN_ATTEMPTS,
            raise_on_status=False,
        )
        self._session.mount(server, requests.adapters.HTTPAdapter(max_retries=retries))

    def close(self):
        self._session.close()

    def predict(self, encoded, signature):
        """Return the outputs for images, and `None`: the server does not send the version."""
        # The server decodes standard base64, but not the URL-safe alphabet.
        instances = [{"b64": base64.b64encode(image).decode("ascii")} for image in encoded]
        request = {"signature_name": signature, "instances": instances}
        rows = self._send("POST", ":predict", json=request)["predictions"]
        # REST omits the name of an output that is the only one. In exports it is `features`.
        rows = [row if isinstance(row, dict) else {"features": row} for row in rows]
        names = rows[0] if rows else ()
        return {name: _as_array([row[name] for row in rows]) for name in names}, None

    def status(self):
        states = self._send("GET", "")["model_version_status"]
        return {int(state["version"]): state["state"] for state in states}

    def _send(self, method, verb, **request):
        errors, url = self._requests.exceptions, self._url + verb
        try:
            # If a POST were redirected, `requests` would send a GET without the images.
            answer = self._session.request(
                method, url, timeout=self._timeout, allow_redirects=False, **request
            )
        except errors.Timeout as error:
            raise TimeoutError(f"{self._url} did not answer within {self._timeout} s") from error
        except errors.RequestException as error:
            raise ConnectionError(f"No server answers at {self._url}: {error}") from error
        if answer.status_code in (400, 404):
            raise _RefusedError(f"{self._url} refuses the request: {_one_line(answer.text)}")
        if answer.status_code != 200:
            failure = {503: ConnectionError, 504: TimeoutError}.get(answer.status_code, OSError)
            raise failure(f"{self._url} failed, {answer.status_code}: {_one_line(answer.text)}")
        return answer.json()


class _Grpc:
    """TF Serving's gRPC API."""

    def __init__(self, address, name, version, timeout):
        import grpc
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        self._grpc, self._timeout = grpc, timeout
        self._address, self._name = address, name
        self._version = int(version) if version else None
        options = [
            # The default limit of 4 MiB is too small for photographs.
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            # By default the time between attempts to connect grows to two minutes.
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.service_config", _GRPC_CONFIG),
        ]
        self._channel = grpc.insecure_channel(address, options)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._model = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def close(self):
        self._channel.close()

    def predict(self, encoded, signature):
        """Return the outputs for images, and the model's version."""
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest(model_spec=self._spec(signature_name=signature))
        request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(encoded, tf.string))
        answer = self._send(self._prediction.Predict, request)
        outputs = {name: tf.make_ndarray(tensor) for name, tensor in answer.outputs.items()}
        for name, array in outputs.items():
            if array.dtype == object:
                # NumPy strings drop trailing null characters, so return Python strings.
                outputs[name] = np.asarray(np.frompyfunc(bytes.decode, 1, 1)(array), object)
        return outputs, answer.model_spec.version.value

    def status(self):
        from tensorflow_serving.apis import get_model_status_pb2 as pb2

        request = pb2.GetModelStatusRequest(model_spec=self._spec())
        states = self._send(self._model.GetModelStatus, request).model_version_status
        name = pb2.ModelVersionStatus.State.Name
        return {state.version: name(state.state) for state in states}

    def _spec(self, **signature):
        from tensorflow_serving.apis.model_pb2 import ModelSpec

        spec = ModelSpec(name=self._name, **signature)
        if self._version is not None:
            spec.version.value = self._version
        return spec

    def _send(self, method, request):
        codes = self._grpc.StatusCode
        try:
            return method(request, timeout=self._timeout)
        except self._grpc.RpcError as error:
            code, message = error.code(), _one_line(error.details())
        if code == codes.DEADLINE_EXCEEDED:
            raise TimeoutError(f"{self._address} did not answer within {self._timeout} s")
        if code == codes.UNAVAILABLE:
            raise ConnectionError(f"No server answers at {self._address}: {message}")
        if code in (codes.INVALID_ARGUMENT, codes.NOT_FOUND, codes.FAILED_PRECONDITION):
            raise _RefusedError(f"{self._address} refuses the request: {message}")
        raise OSError(f"{self._address} failed, {code.name}: {message}")


def _public_error(error, batch, start):
    """Return the error to raise for a rejected request; it names the bad images that are known."""
    match = _BAD_IMAGES.search(str(error))
    bad = [int(index) for index in match[1].split()] if match else []
    # Larger indices refer to a batch that the server merged from the requests of several clients.
    if not bad or max(bad) >= len(batch):
        return ValueError(str(error))
    images = [(batch[index], start + index) for index in bad]
    names = (f"images[{n}]" if isinstance(x, bytes) else repr(str(x)) for x, n in images)
    return BadImageError(
        "`images` must be files that the server can decode. "
        f"Received: {', '.join(names)}{' and others' if match[2] else ''}",
        [position for _, position in images],
    )


def _read(image):
    return image if isinstance(image, bytes) else pathlib.Path(image).expanduser().read_bytes()


def _as_array(values):
    array = np.array(values)
    return array.astype(_DTYPES.get(array.dtype.kind, array.dtype))


def _one_line(message):
    return " ".join(str(message).split())[:1000]
