"""Outputs that are wrong, and outputs that are right, by both APIs."""

import numpy as np
import pytest

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")

from keras_vit.serving.client import Client
from tests.fixtures.serving.asking import BOTH
from tests.fixtures.serving.canned import answering, check_line, check_refused, encode, outputs

IMAGES = [b"one", b"two"]
NAN, INFINITY = float("nan"), float("inf")

OUTPUTS = {
    "answers to fewer images": outputs(1),
    "answers to more images": outputs(3),
    "no outputs": {},
    "NaN": outputs(logits=[[0.0, 1.0, 2.0], [0.0, NAN, 2.0]]),
    "infinity": outputs(logits=[[0.0, 1.0, -INFINITY]] * 2),
    "more than float32 can hold": outputs(logits=np.array([[0.0, 1.0, 1e300]] * 2)),
    "NaN among features": {"features": [[0.0, NAN]] * 2},
    "text for numbers": outputs(probabilities=[["0.2", "0.7", "0.1"]] * 2),
    "truth values for numbers": outputs(logits=[[True, False, True]] * 2),
    "numbers for text": outputs(top_k_labels=[[1, 0]] * 2),
    "fractions for classes": outputs(top_k_classes=[[1.0, 0.5]] * 2),
    "a class that is not there": outputs(top_k_classes=[[3, 0]] * 2),
    "a class below 0": outputs(top_k_classes=[[-1, 0]] * 2),
    "a class of more than 32 bits": outputs(top_k_classes=np.array([[2**40, 0]] * 2)),
    "a probability above 1": outputs(probabilities=[[0.2, 1.75, 0.05]] * 2),
    "a probability below 0": outputs(top_k_probabilities=[[0.75, -0.2]] * 2),
    "more logits than probabilities": outputs(logits=[[0.5, 2.0, -1.0, 0.0]] * 2),
    "fewer labels than classes": outputs(top_k_labels=[["dog"]] * 2),
    "nothing for an image": outputs(logits=np.zeros((2, 0), "float32")),
    "one number for an image": outputs(logits=[0.5, 2.0]),
    "a matrix for an image": outputs(logits=[[[0.5], [2.0], [-1.0]]] * 2),
    "numbers for flags": outputs(is_bad=[0, 1]),
    "several flags for an image": outputs(is_bad=[[False], [True]]),
    "probabilities whose sum is not 1": outputs(probabilities=[[0.2, 0.75, 0.15]] * 2),
    "probabilities of other logits": outputs(logits=[[0.0, 1.0, 2.0]] * 2),
    "probabilities of another image": outputs(
        probabilities=[[0.2, 0.75, 0.05], [0.75, 0.2, 0.05]], top_k_classes=[[1, 0], [0, 1]]
    ),
    "classes in another order": outputs(
        top_k_classes=[[0, 1]] * 2, top_k_probabilities=[[0.2, 0.75]] * 2
    ),
    "classes that are not the most likely": outputs(
        top_k_classes=[[1, 2]] * 2, top_k_probabilities=[[0.75, 0.05]] * 2
    ),
    "probabilities of other classes": outputs(top_k_probabilities=[[0.75, 0.1]] * 2),
    "a class twice": outputs(top_k_classes=[[1, 1]] * 2, top_k_probabilities=[[0.75, 0.75]] * 2),
    "two labels for a class": outputs(top_k_labels=[["dog", "cat"], ["cat", "dog"]]),
    "classes that are not the most likely by logits alone": {
        "logits": [[4.0, 0.0, 0.0]] * 2,
        "top_k_classes": [[2, 1]] * 2,
    },
    "probabilities of other logits than those alone": {
        "logits": [[4.0, 1.0, 0.0]] * 2,
        "top_k_classes": [[0, 1]] * 2,
        "top_k_probabilities": [[0.5, 0.4]] * 2,
    },
    "NaN for an image that is not flagged": outputs(
        logits=[[NAN] * 3, [0.0] * 3], is_bad=[False, True]
    ),
}


@BOTH
@pytest.mark.parametrize("name", OUTPUTS)
def test_wrong_outputs_are_an_error_of_one_line(name, api):
    check_refused(api, encode(api, OUTPUTS[name]))


@BOTH
def test_right_answers(api):
    flagged = outputs(logits=[[NAN] * 3, *outputs(1)["logits"]], is_bad=[True, False])
    named = outputs(top_k_labels=[["dog\0", "猫"]] * 2)
    doubled = outputs(top_k_labels=[["crane", "crane"]] * 2)
    answers = (outputs(), flagged, named, {"features": [[1.0]] * 2}, doubled)
    bodies = [encode(api, answer) for answer in answers]
    with answering(api, *bodies) as url, Client(url, timeout=20) as client:
        found = client.predict(IMAGES)
        assert {name: array.dtype for name, array in found.items()} == {
            "logits": "float32",
            "probabilities": "float32",
            "top_k_classes": "int32",
            "top_k_labels": object,
            "top_k_probabilities": "float32",
        }
        for name, array in found.items():
            assert array.shape == np.shape(outputs()[name])
        assert client.predict(IMAGES)["is_bad"].tolist() == [True, False]
        # NumPy's strings would lose the zero.
        assert client.predict(IMAGES)["top_k_labels"].tolist() == [["dog\0", "猫"]] * 2
        assert client.predict(IMAGES)["features"].tolist() == [[1.0]] * 2
        assert client.predict(IMAGES)["top_k_labels"].tolist() == [["crane", "crane"]] * 2


OTHERS = {
    "other outputs": {"features": [[1.0, 2.0]]},
    "a flag more": outputs(1, is_bad=[False]),
    "a class more": outputs(
        1, logits=[[*outputs(1)["logits"][0], -99.0]], probabilities=[[0.2, 0.75, 0.05, 0.0]]
    ),
    "another label": outputs(1, top_k_labels=[["ant", "cat"]]),
}


@BOTH
@pytest.mark.parametrize("name", OTHERS)
def test_answers_that_differ_from_request_to_request(name, api):
    bodies = [encode(api, made) for made in (outputs(1), OTHERS[name])]
    message = "one label for each class" if "label" in name else "differ from request to request"
    with answering(api, *bodies) as url, Client(url, timeout=20) as client:
        with pytest.raises(OSError, match=message) as caught:
            client.predict(IMAGES, batch_size=1)
        check_line(caught.value, url)
