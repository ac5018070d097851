"""Predictions from a model and from its export."""

import numpy as np
import pytest

from keras_vit.serving.export import export
from tests.fixtures.images import encode, random_image
from tests.fixtures.models import NAMES, classifier
from tests.fixtures.predicted.predictors import export_predictor, keras_predictor


@pytest.mark.slow
def test_predictors_agree(tmp_path):
    model = classifier()
    path = export(model, tmp_path, class_names=NAMES)
    for seed in range(3):
        file = encode(random_image(seed=seed))
        ours, exported = keras_predictor(model, NAMES)(file), export_predictor(path)(file)
        assert [name for name, _ in ours] == [name for name, _ in exported]
        np.testing.assert_allclose([p for _, p in ours], [p for _, p in exported], atol=1e-6)
        assert sum(probability for _, probability in ours) == pytest.approx(1)
        assert sorted(p for _, p in ours)[::-1] == [p for _, p in ours]


def test_predictor_without_names():
    classes = [name for name, _ in keras_predictor(classifier())(encode(random_image()))]
    assert sorted(classes) == ["0", "1", "2"]


def test_a_model_with_one_output_is_refused():
    with pytest.raises(ValueError, match=r"two classes or more.*: logits \(1,\)"):
        keras_predictor(classifier(num_classes=1))(encode(random_image()))


def test_logits_must_be_finite():
    model = classifier()
    model.get_layer("head").bias.assign([np.nan, 0, 0])
    with pytest.raises(ValueError, match="finite logits. Received: NaN"):
        keras_predictor(model)(encode(random_image()))


@pytest.mark.slow
def test_bytes_that_are_not_an_image(tmp_path):
    path = export(classifier(), tmp_path)
    with pytest.raises(ValueError, match="Unknown image file format"):
        export_predictor(path)(b"not an image")


@pytest.mark.slow
def test_a_head_that_is_not_trained(caplog):
    model = classifier()
    head = model.get_layer("head")
    predict = keras_predictor(model, NAMES)
    predict(encode(random_image()))
    assert not [record for record in caplog.records if record.name == "keras_vit"]
    # Its bias alone makes one class more likely than the others.
    head.set_weights([np.zeros(head.kernel.shape), np.arange(len(NAMES), dtype="float32")])
    keras_predictor(model, NAMES)(encode(random_image()))
    (message,) = (record.message for record in caplog.records if record.name == "keras_vit")
    assert "the model's head is zero" in message
