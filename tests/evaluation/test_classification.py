"""Accuracy of a classifier, each image counted once; classes compared by their names."""

import contextlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.core.text import imagenet_class_names, read_labels
from keras_vit.data import load
from keras_vit.evaluation.classification import check_same_classes, evaluate, predictions
from keras_vit.evaluation.extraction import extract_features
from keras_vit.evaluation.metrics import confusion_matrix, expected_calibration_error
from tests.fixtures.contract import to_numpy
from tests.fixtures.features import digits_classifier
from tests.fixtures.images import write_folder


@pytest.fixture
def digits():
    return load("digits", "test", 8, 50)


@pytest.fixture
def model():
    return digits_classifier(10)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [None, ("0", "1", "2")])
def test_accuracy_is_numpys(classes):
    # 50 does not divide the images: the last batch is smaller and must count once.
    test = load("digits", "test", 8, 50, classes=classes)
    model = digits_classifier(len(test.class_names))
    results, found = evaluate(model, test), predictions(model, test)
    batches = list(test.as_numpy_iterator())
    logits = np.concatenate([to_numpy(model(batch)) for batch, _ in batches]).astype("float64")
    labels = np.concatenate([labels for _, labels in batches])
    assert found.class_names == (classes or tuple(map(str, range(10))))
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.predicted, logits.argmax(-1))
    np.testing.assert_array_equal(found.is_right, found.predicted == found.labels)
    assert results["images"] == len(labels) == test.info.num_examples
    assert results["accuracy"] == pytest.approx((logits.argmax(-1) == labels).mean(), abs=1e-6)
    log_sum = np.log(np.exp(logits).sum(-1))
    loss = (log_sum - logits[np.arange(len(labels)), labels]).mean()
    assert results["loss"] == pytest.approx(loss, rel=1e-4)
    if classes is None:
        top_5 = (np.argsort(-logits)[:, :5] == labels[:, None]).any(-1).mean()
        assert results["top_5_accuracy"] == pytest.approx(top_5, abs=1e-6)
    else:
        assert "top_5_accuracy" not in results
    top = (np.exp(logits.max(-1) - log_sum)).astype("float32")
    error = expected_calibration_error(top, logits.argmax(-1) == labels)
    assert results["calibration_error"] == pytest.approx(error, abs=1e-5)


@pytest.mark.slow
def test_each_image_counts_once_where_some_are_skipped(tmp_path):
    write_folder(tmp_path / "train", ("cat", "dog"), count=2)
    write_folder(tmp_path / "test", ("cat", "dog"), count=11)
    for name in ("cat/2.jpg", "dog/0.jpg", "dog/9.jpg"):
        (tmp_path / "test" / name).write_bytes(b"no image")
    test = load(f"folder:{tmp_path}", "test", 8, 4)
    model = digits_classifier(2)
    found = predictions(model, test)
    assert np.bincount(found.labels).tolist() == [10, 9]
    assert confusion_matrix(found.labels, found.predicted, 2).sum() == 19
    # The same in a second pass.
    assert evaluate(model, test)["images"] == 19
    assert len(test.info.skipped) == 3


@pytest.mark.slow
def test_a_shard_that_is_not_the_processs_own_is_evaluated_alone(model):
    test = load("digits", "test", 8, 50, shard=(1, 3))
    assert evaluate(model, test)["images"] == test.info.num_examples == 120


@pytest.mark.slow
def test_a_dataset_is_evaluated_as_its_batches(model, digits):
    assert evaluate(model, digits.info.dataset) == evaluate(model, digits)


@pytest.mark.slow
def test_equal_logits_are_no_hits(model, digits, caplog):
    """As those of an untrained head, of which there is a warning."""
    evaluate(model, digits)
    assert not caplog.records
    model.get_layer("head").kernel.assign(np.zeros((8, 10)))
    found = predictions(model, digits)
    # Equal logits are ranked by class, as in `argmax`.
    np.testing.assert_array_equal(found.is_in_top_5, found.labels < 5)
    np.testing.assert_array_equal(found.is_right, found.labels == 0)
    (record,) = caplog.records
    assert "the kernel of the model's head is zero" in record.getMessage()


def multi_label(digits, labels):
    """Return digits with other labels: a row of zeros and ones for each image."""
    images = np.concatenate([batch for batch, _ in digits.as_numpy_iterator()])[: len(labels)]
    # Like a dataset of `load` with several labels.
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    dataset.class_names, dataset.info = digits.class_names, digits.info
    return dataset, images


@pytest.mark.slow
def test_images_of_several_labels(model, digits):
    """ImageNet-ReaL: any of an image's labels is right; images without labels do not count."""
    rng = np.random.default_rng(0)
    labels = (rng.random((30, 10)) < 0.2).astype("float32")
    labels[[3, 8, 9, 10, 11, 29]] = 0  # the third batch as a whole
    dataset, images = multi_label(digits, labels)
    predicted = to_numpy(model(images)).argmax(-1)
    right = [labels[i, predicted[i]] for i in range(30) if labels[i].any()]
    assert 0 < sum(right) < len(right) < 30
    results = evaluate(model, dataset)
    logits = to_numpy(model(images))[labels.any(axis=1)]
    places = logits.argsort(axis=-1).argsort(axis=-1)
    top_5 = np.mean([max(places[i][own > 0]) >= 5 for i, own in enumerate(labels[labels.any(1)])])
    assert 0 < top_5 < 1
    assert results == {
        "images": len(right),
        "accuracy": pytest.approx(np.mean(right)),
        "top_5_accuracy": pytest.approx(top_5),
    }
    assert len(predictions(model, dataset).predicted) == len(right)


@pytest.mark.slow
def test_the_models_compilation_stays(model, digits):
    optimizer = keras.optimizers.SGD()
    model.compile(optimizer, "mse")
    evaluate(model, digits)
    assert model.optimizer is optimizer


@pytest.mark.slow
def test_other_classes_and_logits_that_are_not_finite(model, digits):
    with pytest.raises(ValueError, match="must have the model's 3 classes.*10 classes"):
        evaluate(digits_classifier(3), digits)
    model.get_layer("head").kernel.assign(np.full((8, 10), np.nan))
    with pytest.raises(ValueError, match="finite logits. Received: 359 of 359 images without"):
        evaluate(model, digits)


@pytest.mark.parametrize("function", [evaluate, extract_features])
def test_a_dataset_without_an_end(function, model):
    with pytest.raises(ValueError, match="The dataset must have an end"):
        function(model, load("digits", "test", 8, 50, repeat=True))


WNIDS = ["n01440764", "n01443537"]
SYNSETS = [synset for synset, _ in read_labels(1000)]
WORDS = imagenet_class_names(1000)


@pytest.mark.parametrize(
    ("model_names", "data_names", "must_be_equal", "message"),
    [
        (["cat", "dog"], ["cat", "dog"], True, None),
        (["cat", "dog"], ["Cat", "Dog"], True, "must have the model's .* in this order"),
        (["dog", "cat"], ["cat", "dog"], False, "must have the model's .* in this order"),
        (["cat", "dog"], ["ant", "cat"], False, "must have the model's .* in this order"),
        (["cat", "dog"], ["cats", "dogs"], False, "different names .*'cat' is 'cats'"),
        (["tench", "goldfish"], WNIDS, False, None),
        (SYNSETS, WORDS, True, None),
        (WORDS, SYNSETS, True, None),
        (WORDS, SYNSETS[1:] + SYNSETS[:1], True, "must have the model's .* in this order"),
        (["cat", "dog"], ["ant", "cat", "dog"], True, "must .* 2 classes.*Received: 3 classes"),
        (["cat", "dog"], ["ant", "bee", "cat"], False, "must have the model's 2 .* 3 classes"),
    ],
)
def test_classes_of_model_and_data(model_names, data_names, must_be_equal, message, caplog):
    is_error = message is not None and message.startswith("must")
    expected = pytest.raises(ValueError, match=message) if is_error else contextlib.nullcontext()
    with expected:
        check_same_classes(model_names, data_names, must_be_equal)
    if message is None or is_error:
        assert not caplog.messages
    else:
        assert re.search(message, caplog.text)
