"""Requests to the server of the tests."""

import numpy as np
import pytest

from keras_vit.data.decoding import decode
from keras_vit.data.images import evaluation_image
from keras_vit.serving.client import Client
from tests.images import encode, random_image

NAMES = ["cat", "dög", "eel"]
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
BROKEN = b"\xff\xd8\xff no image"
BOTH = pytest.mark.parametrize("api", ["rest", "grpc"])


def ask(server, api, name="pets", **options):
    return Client(server.url(api, name), **options)


def files(count=5):
    """Pictures of several sizes and formats; that which is a BMP ends with zero bytes."""
    pictures = [random_image(10 + index, 30, seed=index) for index in range(count)]
    for picture in pictures:
        picture[0] = 0
    return [encode(picture, kind) for picture, kind in zip(pictures, FORMATS, strict=False)]


def expected_logits(model, encoded):
    pixels = np.stack([evaluation_image(decode(file), (16, 16)) for file in encoded])
    return model.predict(pixels, verbose=0)
