"""The server of the tests takes and refuses what TF Serving does, as far as its pages say."""

import base64
import json

import numpy as np
import pytest

from tests.fixtures.asking import ask, files

requests = pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")


@pytest.mark.parametrize("form", ["row", "named row", "column", "named column"])
def test_every_form_of_a_rest_request(form, server):
    """The peer takes them as TF Serving documents them, so the client's form is no accident."""
    instances = [{"b64": base64.b64encode(file).decode()} for file in files(2)]
    body = {
        "row": {"instances": instances},
        "named row": {"instances": [{"image_bytes": one} for one in instances]},
        "column": {"inputs": instances},
        "named column": {"inputs": {"image_bytes": instances}},
    }[form]
    answer = requests.post(server.url("rest", "pets") + ":predict", json=body, timeout=20).json()
    if "row" in form:
        logits = [row["logits"] for row in answer["predictions"]]
    else:
        logits = answer["outputs"]["logits"]
    with ask(server, "grpc") as client:
        np.testing.assert_array_equal(np.float32(logits), client.predict(files(2))["logits"])


def test_numbers_by_rest(server, models):
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    body = {"signature_name": "float", "instances": images.tolist()}
    answer = requests.post(server.url("rest", "pets") + ":predict", json=body, timeout=20).json()
    logits = [row["logits"] for row in answer["predictions"]]
    np.testing.assert_allclose(logits, models[3].predict(images, verbose=0), rtol=0, atol=1e-5)


def test_what_the_peer_refuses(server):
    url = server.url("rest", "pets")
    # In the URL-safe alphabet, which TF Serving does not decode.
    url_safe = base64.urlsafe_b64encode(b"\xff\xef\xbe\xff").decode()
    assert set(url_safe) & set("-_")
    for body in (
        json.dumps({"instances": [{"b64": url_safe}]}),
        json.dumps({"instances": []}),
        json.dumps({"instances": ["a"], "inputs": ["a"]}),
        json.dumps({"signature_name": "float", "instances": [[1.0, 2.0]]}),
        "{",
    ):
        answer = requests.post(url + ":predict", data=body, timeout=20)
        assert answer.status_code == 400, body
        assert answer.text.startswith('{ "error": "')
    assert requests.get(url + ":predict", timeout=20).status_code == 400
    assert requests.get(url + "s", timeout=20).status_code == 404
