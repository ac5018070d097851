"""The server of the tests behaves like TF Serving, as far as that is documented."""

import base64
import json

import numpy as np
import pytest

from tests.fixtures.models import files
from tests.fixtures.serving.asking import ask
from tests.fixtures.tiny import images

requests = pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")


def logits_of(server, body):
    answer = requests.post(server.url("rest", "pets") + ":predict", json=body, timeout=20).json()
    return np.float32([row["logits"] for row in answer["predictions"]])


@pytest.mark.slow
def test_every_row_form_of_a_rest_request(server):
    """As documented by TF Serving; the client uses one of these forms."""
    instances = [{"b64": base64.b64encode(file).decode()} for file in files(2)]
    with ask(server, "grpc") as client:
        expected = client.predict(files(2))["logits"]
    for rows in (instances, [{"image_bytes": one} for one in instances]):
        np.testing.assert_array_equal(logits_of(server, {"instances": rows}), expected)


@pytest.mark.slow
def test_numbers_by_rest(server, models):
    pixels = images(2, 16, 16, 3)
    logits = logits_of(server, {"signature_name": "float", "instances": pixels.tolist()})
    np.testing.assert_allclose(logits, models[3].predict(pixels, verbose=0), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_what_the_peer_refuses(server):
    url = server.url("rest", "pets")
    # In the URL-safe alphabet, which TF Serving does not decode.
    url_safe = base64.urlsafe_b64encode(b"\xff\xef\xbe\xff").decode()
    assert set(url_safe) & set("-_")
    for body in (
        json.dumps({"instances": [{"b64": url_safe}]}),
        json.dumps({"instances": []}),
        json.dumps({"signature_name": "float"}),
        json.dumps({"signature_name": "float", "instances": [[1.0, 2.0]]}),
        "{",
    ):
        answer = requests.post(url + ":predict", data=body, timeout=20)
        assert answer.status_code == 400, body
        assert answer.text.startswith('{ "error": "')
    assert requests.get(url + ":predict", timeout=20).status_code == 400
    assert requests.get(url + "s", timeout=20).status_code == 404
