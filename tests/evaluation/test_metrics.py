"""Metrics of arrays, compared with scikit-learn and the definitions, and their figure."""

import numpy as np
import pytest
import sklearn.metrics

from keras_vit.evaluation.metrics import (
    confusion_matrix,
    expected_calibration_error,
    per_class_accuracy,
    write_confusion,
)


@pytest.fixture
def labels_and_predicted():
    """Labels and predictions of 7 classes; class 5 has no image, class 2 no prediction."""
    rng = np.random.default_rng(0)
    labels = rng.choice([0, 1, 2, 3, 4, 6], 500)
    guesses = rng.choice([0, 1, 3, 4, 5, 6], 500)
    right = (rng.random(500) < 0.6) & (labels != 2)
    return labels, np.where(right, labels, guesses)


def test_confusion_is_scikit_learns(labels_and_predicted):
    expected = sklearn.metrics.confusion_matrix(*labels_and_predicted, labels=range(7))
    np.testing.assert_array_equal(confusion_matrix(*labels_and_predicted, 7), expected)
    unsigned = [np.array(classes, "uint8") for classes in ([0, 1], [1, 1])]
    assert confusion_matrix(*unsigned, 2).tolist() == [[0, 1], [0, 1]]


def test_accuracy_of_a_class_is_scikit_learns_recall(labels_and_predicted):
    labels, predicted = labels_and_predicted
    recall = sklearn.metrics.recall_score(
        labels, predicted, labels=range(7), average=None, zero_division=np.nan
    )
    np.testing.assert_allclose(per_class_accuracy(labels, predicted, 7), recall)
    assert np.isnan(recall[5])


def by_definition(probabilities, is_right, num_bins):
    """Equation 3 of arXiv 1706.04599, bin by bin."""
    error = 0.0
    for index in range(num_bins):
        own = (index / num_bins < probabilities) & (probabilities <= (index + 1) / num_bins)
        if own.any():
            error += own.mean() * abs(is_right[own].mean() - probabilities[own].mean())
    return error


@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_calibration_error_is_the_definitions(num_bins):
    rng = np.random.default_rng(0)
    # Some are the ends of bins.
    probabilities = np.concatenate([rng.random(300) ** 0.3, np.arange(1, 16) / 15, [0.1, 0.3]])
    is_right = rng.random(len(probabilities)) < probabilities**2
    expected = by_definition(probabilities, is_right, num_bins)
    error = expected_calibration_error(probabilities, is_right, num_bins)
    assert error == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("pair", [([0, 2], [0, 1]), ([0, 1], [-1, 1])])
def test_numbers_that_are_no_classes(pair):
    with pytest.raises(ValueError, match="invalid entry"):
        confusion_matrix(*pair, 2)


def test_a_confusion_matrix_is_written_whole(tmp_path):
    path = tmp_path / "confusion.csv"
    write_confusion(np.eye(2, dtype=int), ["cat", "dog"], path)
    before = path.read_text()
    with pytest.raises(ValueError, match="zip"):
        write_confusion(np.eye(3, dtype=int), ["cat", "dog"], path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
