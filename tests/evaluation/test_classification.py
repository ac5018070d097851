"""Accuracy of a classifier, each image counted once; classes compared by their names."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.core.text import imagenet_class_names, read_labels
from keras_vit.data import load
from keras_vit.evaluation.classification import check_same_classes, evaluate, predictions
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
def test_equal_logits_are_no_hits(model, digits):
    """Equal logits are ranked by class, as in `argmax`."""
    model.get_layer("head").kernel.assign(np.zeros((8, 10)))
    found = predictions(model, digits)
    np.testing.assert_array_equal(found.is_in_top_5, found.labels < 5)
    np.testing.assert_array_equal(found.is_right, found.labels == 0)


@pytest.mark.slow
def test_images_of_several_labels(model, digits):
    """ImageNet-ReaL: any of an image's labels is right; images without labels do not count."""
    rng = np.random.default_rng(0)
    labels = (rng.random((30, 10)) < 0.2).astype("float32")
    labels[[3, 8, 9, 10, 11, 29]] = 0  # the third batch as a whole
    images = np.concatenate([batch for batch, _ in digits.as_numpy_iterator()])[:30]
    # Like a dataset of `load` with several labels.
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    dataset.class_names, dataset.info = digits.class_names, digits.info
    counted = labels.any(axis=1)
    places = to_numpy(model(images)).argsort(axis=-1).argsort(axis=-1)
    best = [max(own[row > 0]) for own, row in zip(places[counted], labels[counted], strict=True)]
    assert 0 < np.mean(np.equal(best, 9)) < np.mean(np.greater_equal(best, 5)) < 1
    assert evaluate(model, dataset) == {
        "images": counted.sum(),
        "accuracy": pytest.approx(np.mean(np.equal(best, 9))),
        "top_5_accuracy": pytest.approx(np.mean(np.greater_equal(best, 5))),
    }
    assert len(predictions(model, dataset).predicted) == counted.sum()


@pytest.mark.slow
def test_other_classes_and_logits_that_are_not_finite(model, digits):
    with pytest.raises(ValueError, match="must have the model's 3 classes"):
        evaluate(digits_classifier(3), digits)
    model.get_layer("head").kernel.assign(np.full((8, 10), np.nan))
    with pytest.raises(ValueError, match="finite logits"):
        evaluate(model, digits)


def test_a_dataset_without_an_end_is_refused(model):
    with pytest.raises(ValueError, match="The dataset must have an end"):
        evaluate(model, load("digits", "test", 8, 50, repeat=True))


WNIDS = ["n01440764", "n01443537"]
SYNSETS = [synset for synset, _ in read_labels(1000)]
WORDS = imagenet_class_names(1000)


@pytest.mark.parametrize(
    ("model_names", "data_names", "must_be_equal", "message"),
    [
        (["cat", "dog"], ["cat", "dog"], True, None),
        (["tench", "goldfish"], WNIDS, False, None),
        (SYNSETS, WORDS, True, None),
        (["cat", "dog"], ["Cat", "Dog"], True, "must have the model's .* in this order"),
        (["dog", "cat"], ["cat", "dog"], False, "must have the model's .* in this order"),
        (["cat", "dog"], ["ant", "cat"], False, "must have the model's .* in this order"),
        (WORDS, SYNSETS[1:] + SYNSETS[:1], True, "must have the model's .* in this order"),
        (["cat", "dog"], ["ant", "bee", "cat"], False, "must have the model's 2 .* 3 classes"),
    ],
)
def test_classes_of_model_and_data(model_names, data_names, must_be_equal, message, caplog):
    expected = pytest.raises(ValueError, match=message) if message else contextlib.nullcontext()
    with expected:
        check_same_classes(model_names, data_names, must_be_equal)
    assert not caplog.messages
