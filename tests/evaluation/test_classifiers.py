"""Classifiers of features, next to scikit-learn, a direct solution and big_vision's weights."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import StandardScaler

from keras_vit.evaluation.classifiers import solve_least_squares
from keras_vit.evaluation.fewshot import fewshot_accuracies
from tests.fixtures.features import clusters


@pytest.mark.parametrize("num_examples", [400, 65, 64, 63, 20])
@pytest.mark.parametrize("l2", [1.0, 1024.0])
def test_solver_is_the_direct_solution(num_examples, l2):
    rng = np.random.default_rng(0)
    x = np.pad(rng.normal(size=(num_examples, 63)), ((0, 0), (0, 1)), constant_values=100.0)
    y = rng.choice([-1.0, 1.0], size=(num_examples, 7))
    direct = np.linalg.solve(x.T @ x + l2 * np.eye(64), x.T @ y)
    weights = solve_least_squares(x.astype("float32"), y, l2)
    assert weights.dtype == "float64"
    np.testing.assert_allclose(weights, direct, rtol=0, atol=1e-4)
    np.testing.assert_allclose(solve_least_squares(x, y, l2), direct, rtol=0, atol=1e-9)


def test_many_tests_are_scored_in_parts(monkeypatch):
    data = clusters()
    expected = fewshot_accuracies(*data, 3)
    monkeypatch.setattr("keras_vit.evaluation.classifiers._CHUNK", 7)
    assert fewshot_accuracies(*data, 3) == expected


def test_nearest_neighbors_are_weighted_votes():
    train, labels, test, test_labels = clusters()
    similarity = cosine_similarity(test.astype("float64"), train.astype("float64"))
    votes = np.zeros((len(test), 3))
    for row, similarities in enumerate(similarity):
        for index in np.argsort(-similarities)[:20]:
            votes[row, labels[index]] += np.exp(similarities[index] / 0.07)
    found = fewshot_accuracies(train, labels, test, test_labels, 3, method="knn")
    expected = np.mean(votes.argmax(axis=1) == test_labels)
    assert found == {("all", 0): pytest.approx(expected, abs=1e-9)}
    # Fewer examples than neighbors.
    few = fewshot_accuracies(train, labels, test, test_labels, 3, shots=(1, 2), method="knn")
    assert len(few) == 6


@pytest.mark.parametrize(("l2", "inverse"), [(None, 1.0), (100.0, 0.01)])
def test_linear_probe_is_scikit_learns(l2, inverse):
    train, labels, test, test_labels = clusters()
    scaler = StandardScaler().fit(train.astype("float64"))
    probe = LogisticRegression(C=inverse, max_iter=1000).fit(scaler.transform(train), labels)
    expected = probe.score(scaler.transform(test), test_labels)
    options = {"shots": ("all", 5), "method": "linear-probe", "l2": l2}
    found = fewshot_accuracies(train, labels, test, test_labels, 3, **options)
    assert list(found) == [("all", 0), (5, 0), (5, 1), (5, 2)]
    assert found["all", 0] == pytest.approx(expected, abs=1e-9)


def test_a_linear_probe_that_does_not_converge_says_so(monkeypatch, caplog):
    monkeypatch.setattr("keras_vit.evaluation.classifiers._MAX_ITERATIONS", 1)
    fewshot_accuracies(*clusters(), 3, method="linear-probe")
    assert "not converged after 1 iterations" in caplog.text
