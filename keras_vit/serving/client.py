"""A client of TF Serving, by REST and by gRPC."""

import contextlib
import pathlib
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.core.arguments import check_integer, is_number
from keras_vit.core.text import printable
from keras_vit.serving.protocol.answers import AnswerError, join
from keras_vit.serving.protocol.transports import Grpc, RequestError, Rest

_REST_URL = re.compile(r"(https?://[^/\s]+)/v1/models/([^/:\s]+)(?:/versions/([0-9]{1,18}))?/?")
_GRPC_URL = re.compile(r"grpc://([^/\s]+)/([^/:\s]+)(?:/versions/([0-9]{1,18}))?/?")
# The export's error about bad images: their indices, and "..." after the first 100.
_BAD_IMAGES = re.compile(r"index in the batch:\W+([0-9 ]+)(\.\.\.)?")
# The export's error about a wrong number of images.
_FIXED_BATCH = re.compile(r"\[(\d+)\] is not compatible with expected shape \[(\d+)\]")
_SECONDS_BETWEEN_ATTEMPTS = 0.2


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
    """A client of a model that TF Serving serves. Each thread needs its own client.

    It sends files as they are: `keras-vit client` turns photographs upright, this class does not.

    Args:
        url: `http://HOST:8501/v1/models/NAME` for REST, `grpc://HOST:8500/NAME` for gRPC; with
            `/versions/N` at the end for a version other than the newest.
        timeout: seconds that one request may take in all.

    Raises:
        ValueError: if the URL has another form, the timeout is out of range, or a package is
            missing.

    Reference:
        https://www.tensorflow.org/tfx/serving/api_rest

    Example:
    >>> from keras_vit.serving.client import Client
    >>> with Client("http://localhost:8501/v1/models/pets", timeout=5) as client:
    ...     client.predict(["cat.jpg"])
    Traceback (most recent call last):
    ValueError: `images` must be files that can be read. Received: 'cat.jpg' (No such file ...)
    """

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        _check_timeout(timeout)
        for pattern, transport in ((_REST_URL, Rest), (_GRPC_URL, Grpc)):
            parts = pattern.fullmatch(str(url))
            if parts and _is_address(parts[1]):
                self._transport = transport(*parts.groups(), timeout)
                self.url = str(url)
                return
        raise ValueError(
            "`url` must be 'http://HOST:PORT/v1/models/NAME' or 'grpc://HOST:PORT/NAME', either "
            f"with '/versions/N' at the end or without. Received: url={url!r}"
        )

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def predict(self, images: Any, batch_size: int = 32, signature: str = "serving_default") -> Any:
        """Classify images, or return whatever else the signature computes.

        Args:
            images: list of paths of JPEG, PNG, GIF, BMP or WebP files, or of their bytes. The
                orientation in their metadata is ignored: `keras_vit.serving.predict.read_image`
                returns the bytes of an upright image.
            batch_size: number of images in a request.
            signature: name of a signature that takes `image_bytes`.

        Returns:
            A dictionary of the outputs, NumPy arrays `(images, ...)`. Numbers are finite, except
            for images that `is_bad` flags. Text is an array of Python strings.

        Raises:
            BadImageError: a `ValueError`, if the server cannot decode an image.
            ValueError: if a file cannot be read, or the server does not have the model or rejects
                the request.
            OSError: if the server fails or answers anything but the outputs for these images; a
                `ConnectionError` if there is no server, a `TimeoutError` if it takes too long.
        """
        if isinstance(images, str | bytes | pathlib.Path) or not len(images):
            raise ValueError(
                "`images` must be a list of at least one path or bytes. "
                f"Received: {'an empty' if not images else 'a'} {type(images).__name__}"
            )
        check_integer("batch_size", batch_size, minimum=1)
        answers, versions = [], set()
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size]
            encoded = [_read(image) for image in batch]
            with self._explaining(batch, start):
                outputs, version = self._transport.predict(encoded, signature)
            answers.append(outputs)
            versions |= {version} - {None}
        with self._explaining():
            return join(answers, versions)

    def status(self, timeout: float | None = None) -> Any:
        """Return the state of each version of the model: `{1: "AVAILABLE"}`.

        Args:
            timeout: seconds that the request may take in all; `None` for the client's.

        Raises:
            ValueError: if the server does not have the model.
            OSError: as in `predict`.

        Reference:
            `ModelVersionStatus` of TF Serving's `get_model_status.proto`.
        """
        if timeout is not None:
            _check_timeout(timeout)
        with self._explaining():
            return self._transport.status(timeout)

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait until a version of the model is available.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: if none is by then; its message has the server's last answer.
        """
        _check_timeout(timeout)
        end = time.monotonic() + timeout
        while True:
            left = max(end - time.monotonic(), _SECONDS_BETWEEN_ATTEMPTS)
            try:
                last = self.status(left)
            except (ValueError, OSError) as error:
                # The server may be starting, or loading the model.
                last = error
            else:
                if "AVAILABLE" in last.values():
                    return
            if time.monotonic() > end:
                raise TimeoutError(
                    f"The model at {self.url} is not ready after {timeout} seconds: {last}"
                )
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)

    @contextlib.contextmanager
    def _explaining(self, batch=(), start=0):
        """Turn the errors of a request into errors that name the cause."""
        try:
            yield
        except RequestError as error:
            raise self._explained(error, batch, start) from error
        except AnswerError as error:
            raise OSError(
                f"The server at {self.url} does not answer what was asked for: "
                f"{printable(str(error))}"
            ) from error

    def _explained(self, error, batch, start):
        if error.is_unknown_model:
            return ValueError(
                "`url` must name a model that the server has. "
                f"Received: url={self.url!r}, and the answer: {error}"
            )
        found = _BAD_IMAGES.search(str(error))
        bad = [int(index) for index in found[1].split()] if found else []
        # Larger indices refer to a batch that the server merged from several clients.
        if bad and max(bad) < len(batch):
            names = ", ".join(_name(batch[index], start + index) for index in bad)
            return BadImageError(
                "`images` must be ones that the server can decode. "
                f"Received: {names}{' and others' if found[2] else ''}",
                [start + index for index in bad],
            )
        fixed = _FIXED_BATCH.search(str(error))
        if fixed:
            return ValueError(
                f"This export takes {fixed[2]} images in each request (its `batch_size`). "
                f"Received: {fixed[1]} in one"
            )
        return ValueError(
            f"The request must be one that the model takes. Received from {self.url}: {error}"
        )


def _is_address(server):
    """Whether an address has a valid port or none, as gRPC takes ports modulo 65536, and a host."""
    port = server.rpartition(":")[2]
    return ".." not in server and (not port.isdecimal() or int(port) < 2**16)


def _check_timeout(timeout):
    # Python cannot wait longer.
    if not is_number(timeout) or not 0 < timeout <= threading.TIMEOUT_MAX:
        raise ValueError(
            f"`timeout` must be positive and at most {threading.TIMEOUT_MAX:g} seconds. "
            f"Received: timeout={timeout!r}"
        )


def _read(image):
    if isinstance(image, np.bytes_):
        raise ValueError(
            "`images` must be Python's bytes: NumPy's lose the zeros at their end. "
            "Received: numpy.bytes_ among them"
        )
    if isinstance(image, bytes):
        return image
    try:
        return pathlib.Path(image).expanduser().read_bytes()
    except OSError as error:
        raise ValueError(
            f"`images` must be files that can be read. Received: {str(image)!r} ({error.strerror})"
        ) from error
    except TypeError as error:
        raise ValueError(
            "`images` must be a list of paths or bytes. "
            f"Received: {type(image).__name__} among them"
        ) from error


def _name(image, position):
    return f"images[{position}]" if isinstance(image, bytes) else repr(str(image))
