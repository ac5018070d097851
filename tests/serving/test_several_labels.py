"""Answers about images of several labels."""

import numpy as np
import pytest
import scipy.special

from keras_vit.cli.client import most_likely
from keras_vit.data import load
from keras_vit.evaluation import evaluate
from keras_vit.serving.export import export
from tests.fixtures.images import encode, random_image
from tests.fixtures.models import NAMES, classifier
from tests.fixtures.predicted.predictors import export_predictor, keras_predictor

LOGITS = np.array([[1.0, 2.0, -3.0]])
ANSWER = {
    "logits": LOGITS,
    "probabilities": scipy.special.expit(LOGITS),
    "predicted": np.array([[True, True, False]]),
    "predicted_labels": np.array([["cat", "dog", ""]], object),
}


def test_an_answer_of_several_labels():
    assert most_likely(ANSWER, 1, "http://localhost") == [
        ("dog", pytest.approx(0.8808, abs=1e-4)),
        ("cat", pytest.approx(0.7311, abs=1e-4)),
    ]


@pytest.mark.slow
def test_other_formats_record_the_thresholds(tmp_path):
    pytest.importorskip("onnxruntime")
    model = classifier()
    probabilities = dict(keras_predictor(model, NAMES)(encode(random_image())))
    model.thresholds = (1e-6, 0.5, 1 - 1e-6)
    path = export(model, tmp_path, format="onnx", class_names=NAMES)
    ours, exported = (
        predict(encode(random_image()))
        for predict in (keras_predictor(model, NAMES), export_predictor(path))
    )
    assert [name for name, _ in ours] == [name for name, _ in exported]
    assert NAMES[0] in dict(ours) and NAMES[2] not in dict(ours) and len(probabilities) == 3
    np.testing.assert_allclose([p for _, p in ours], [p for _, p in exported], atol=1e-5)


def test_images_of_one_label_are_refused():
    model = classifier()
    model.thresholds = (0.5,) * 3
    with pytest.raises(ValueError, match=r"`labels` and `scores` must be .* shapes \(108,\) and"):
        evaluate(model, load("digits", "test", model.input_shape[1:3], 8, classes=("1", "2", "3")))
