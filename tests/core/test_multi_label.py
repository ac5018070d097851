"""Average precision and thresholds, against scikit-learn's metrics."""

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from keras_vit.core.multi_label import average_precision, best_thresholds, check_thresholds


def some_labels(seed, images=40, classes=4):
    """Labels and scores from 0 to 1, of which many are equal."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, rng.integers(3, 40), (images, classes)) / 40
    labels = rng.random((images, classes)) < rng.random(classes)
    labels[0] = True
    return labels.astype("float32"), scores


@given(st.lists(st.tuples(st.booleans(), st.floats(-9, 9, width=16)), min_size=1, max_size=20))
def test_average_precision_is_scikit_learns(pairs):
    truth, scores = (np.array(column)[:, None] for column in zip(*pairs, strict=True))
    (found,) = average_precision(truth, scores)
    if truth.any():
        expected = sklearn.metrics.average_precision_score(truth.ravel(), scores.ravel())
        assert found == pytest.approx(expected, abs=1e-12)
    else:
        assert np.isnan(found)


@pytest.mark.parametrize("seed", range(8))
def test_thresholds_have_the_highest_f1(seed):
    labels, scores = some_labels(seed)
    labels[:, 3] = 0
    thresholds = best_thresholds(labels, scores)
    assert thresholds[3] == 0.5
    for truth, score, threshold in list(zip(labels.T, scores.T, thresholds, strict=True))[:3]:
        levels = np.unique(score)
        f1 = [sklearn.metrics.f1_score(truth, score >= level) for level in levels]
        found = sklearn.metrics.f1_score(truth, score > threshold)
        assert found == pytest.approx(max(f1))
        assert not np.isclose(f1, max(f1))[levels > threshold].tolist()[1:].count(True)


def test_saturated_probabilities_have_thresholds_in_range():
    thresholds = best_thresholds([[1, 1], [0, 1]], [[1.0, 0.0], [1 - 1e-12, 0.0]])
    assert check_thresholds(thresholds, 2) == thresholds


@pytest.mark.parametrize("wrong", [0.5, (0.5,), (0.5, 1), (0, 0.5), (0.5, float("nan"))])
def test_thresholds_that_decide_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be 2 numbers between 0 and 1"):
        check_thresholds(wrong, 2)


@pytest.mark.parametrize(
    ("labels", "scores"), [([1, 0], [0.1, 0.2]), ([[1], [0]], [[0.1]]), ([[2]], [[1]])]
)
def test_labels_that_do_not_fit_the_scores_are_refused(labels, scores):
    with pytest.raises(ValueError, match="must be zeros and ones"):
        average_precision(labels, scores)
