"""A client of TF Serving, by REST and by gRPC."""

import pathlib
import re
import time

import numpy as np

from keras_vit.serving.checks import is_count
from keras_vit.serving.transports import Grpc, RequestError, Rest

_REST_URL = re.compile(r"(https?://[^/\s]+)/v1/models/([^/:\s]+)(?:/versions/([0-9]+))?/?")
_GRPC_URL = re.compile(r"grpc://([^/\s]+)/([^/:\s]+)(?:/versions/([0-9]+))?/?")
# What an export says of images that it cannot decode.
_BAD_IMAGES = re.compile(r"index in the batch:\W+([0-9 ]+)")
# And of their number.
_FIXED_BATCH = re.compile(r"\[(\d+)\] is not compatible with expected shape \[(\d+)\]")
_SECONDS_BETWEEN_ATTEMPTS = 0.2


class BadImageError(ValueError):
    """Images that the server cannot decode.

    Args:
        message: says which and why.
        positions: list of their positions in the images that were given.
    """

    def __init__(self, message, positions):
        super().__init__(message)
        self.positions = positions


class Client:
    """Asks a model that TF Serving serves; each thread needs a client of its own.

    Args:
        url: `http://HOST:8501/v1/models/NAME` for REST, `grpc://HOST:8500/NAME` for gRPC; with
            `/versions/N` behind it for a version other than the newest.
        timeout: seconds that one request may take.

    Raises:
        ValueError: if the URL is of neither form or a package is missing that it needs.

    Reference:
        https://www.tensorflow.org/tfx/serving/api_rest

    Example:
    >>> from keras_vit.serving.client import Client
    >>> with Client("http://localhost:8501/v1/models/pets", timeout=5) as client:
    ...     client.predict(["cat.jpg"])
    Traceback (most recent call last):
    ValueError: `images` must be files that can be read. Received: 'cat.jpg' (No such file ...)
    """

    def __init__(self, url, timeout=60.0):
        if not timeout > 0:
            raise ValueError(f"`timeout` must be positive. Received: timeout={timeout!r}")
        for pattern, transport in ((_REST_URL, Rest), (_GRPC_URL, Grpc)):
            parts = pattern.fullmatch(str(url))
            if parts:
                self._transport = transport(*parts.groups(), timeout)
                self._url = url
                return
        raise ValueError(
            "`url` must be 'http://HOST:PORT/v1/models/NAME' or 'grpc://HOST:PORT/NAME', either "
            f"with '/versions/N' behind it or without. Received: url={url!r}"
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Closes the connection."""
        self._transport.close()

    def predict(self, images, batch_size=32, signature="serving_default"):
        """What the model answers to images.

        Args:
            images: list of paths of JPEG, PNG, GIF, BMP or WebP files, or of their bytes. They are
                classified as they are stored: `keras_vit.serving.predict.read_image` gives the
                bytes of a photograph that a turned camera took, turned upright.
            batch_size: how many are sent in a request.
            signature: name of a signature that takes `image_bytes`.

        Returns:
            A dictionary of the outputs, NumPy arrays `(images, ...)`.

        Raises:
            BadImageError: a `ValueError`, if the server cannot decode an image.
            ValueError: if a file cannot be read, or the server does not know the model or does not
                take the request.
            OSError: if the server fails; a `ConnectionError`, if there is none, and a
                `TimeoutError`, if it takes too long.
        """
        if isinstance(images, str | bytes | pathlib.Path) or not len(images):
            raise ValueError(
                "`images` must be a list of at least one path or bytes. "
                f"Received: {'an empty' if not images else 'a'} {type(images).__name__}"
            )
        if not is_count(batch_size):
            raise ValueError(
                f"`batch_size` must be a positive integer. Received: batch_size={batch_size!r}"
            )
        answers = []
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size]
            encoded = [_read(image) for image in batch]
            try:
                answers.append(self._transport.predict(encoded, signature))
            except RequestError as error:
                raise self._explain(error, batch, start) from error
        return {name: np.concatenate([part[name] for part in answers]) for name in answers[0]}

    def status(self, timeout=None):
        """The state of each version of the model: `{1: "AVAILABLE"}`.

        Args:
            timeout: seconds that it may take; `None` for the client's.

        Raises:
            ValueError: if the server does not know the model.
            OSError: as in `predict`.

        Reference:
            `ModelVersionStatus` of TF Serving's `get_model_status.proto`.
        """
        try:
            return self._transport.status(timeout)
        except RequestError as error:
            raise self._explain(error) from error

    def wait_until_ready(self, timeout=60.0):
        """Waits until a version of the model can be asked.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: if none can be by then; it says what the server answered last.
        """
        end = time.monotonic() + timeout
        while True:
            left = max(end - time.monotonic(), _SECONDS_BETWEEN_ATTEMPTS)
            try:
                last = self.status(left)
            except (ValueError, OSError) as error:
                # It may still have to start, and to find the model.
                last = error
            else:
                if "AVAILABLE" in last.values():
                    return
            if time.monotonic() > end:
                raise TimeoutError(
                    f"The model at {self._url} is not ready after {timeout} seconds: {last}"
                )
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)

    def _explain(self, error, batch=(), start=0):
        """What a user can do something about."""
        if error.is_unknown_model:
            return ValueError(
                "`url` must name a model that the server has. "
                f"Received: url={self._url!r}, to which it answers: {error}"
            )
        found = _BAD_IMAGES.search(str(error))
        bad = [index for index in map(int, found[1].split()) if index < len(batch)] if found else ()
        if bad:
            names = ", ".join(_name(batch[index], start + index) for index in bad)
            return BadImageError(
                f"`images` must be ones that the server can decode. Received: {names}",
                [start + index for index in bad],
            )
        fixed = _FIXED_BATCH.search(str(error))
        if fixed:
            return ValueError(
                f"This export takes {fixed[2]} images in each request (its `batch_size`). "
                f"Received: {fixed[1]} in one"
            )
        return ValueError(
            f"The request must be one that the model takes. Received from {self._url}: {error}"
        )


def _read(image):
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
