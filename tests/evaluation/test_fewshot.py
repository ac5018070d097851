"""Few-shot accuracy of features, next to big_vision's, scikit-learn's and a direct solution."""

import itertools
import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import StandardScaler

from keras_vit.data import load
from keras_vit.evaluation.fewshot import (
    choose_examples,
    evaluate_fewshot,
    fewshot_accuracies,
    solve_least_squares,
)
from tests.fixtures.features import clusters, tiny_model
from tests.fixtures.reference import REFERENCE, read_npz

CASE = "x1_fewshot_lsr"
ACCURACIES = json.loads((REFERENCE / f"{CASE}.json").read_text())["accuracies"]


@pytest.fixture(scope="module")
def arrays():
    return read_npz(f"{CASE}.io.npz")


def examples_of(arrays, kind):
    return [arrays[f"{kind}/{name}"] for name in ("x_train", "y_train", "x_test", "y_test")]


def settings_in(name):
    kind, seed, shots, last = name.split("/")
    return kind, int(seed.removeprefix("seed")), int(shots.removeprefix("shots")), last


@pytest.mark.parametrize(("name", "expected"), ACCURACIES)
def test_big_visions_accuracies(arrays, name, expected):
    kind, seed, shots, l2 = settings_in(name)
    options = {"shots": (shots,), "seeds": (seed,), "l2": float(l2.removeprefix("l2_"))}
    found = fewshot_accuracies(*examples_of(arrays, kind), num_classes=4, **options)
    assert found == {(shots, seed): pytest.approx(expected, abs=1e-6)}


def test_big_visions_examples_and_weights(arrays):
    names = [name for name in arrays if name.endswith("/indices")]
    assert len(names) == 15
    for name in names:
        kind, seed, shots, _ = settings_in(name)
        train, labels, *_ = examples_of(arrays, kind)
        chosen = choose_examples(labels, 4, shots, seed)
        np.testing.assert_array_equal(chosen, arrays[name])
        x = train[chosen]
        x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-5)
        x = np.pad(x, ((0, 0), (0, 1)), constant_values=100.0)
        weights = solve_least_squares(x, 2 * np.eye(4)[labels[chosen]] - 1, 1024)
        expected = arrays[name.replace("indices", "l2_1024/weights")]
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)


def test_more_shots_include_the_examples_of_less():
    labels = np.random.default_rng(0).integers(0, 5, 300)
    chosen = [set(choose_examples(labels, 5, shots, seed=1)) for shots in (1, 5, 10, 25, "all")]
    assert [len(part) for part in chosen] == [5, 25, 50, 125, 300]
    assert all(less < more for less, more in itertools.pairwise(chosen))
    assert set(choose_examples(labels, 5, 25, seed=2)) != chosen[3]


def test_small_classes_contribute_what_they_have(caplog):
    labels = np.array([0] * 30 + [1] * 2 + [3] * 7)
    chosen = choose_examples(labels, 4, 5, seed=0)
    np.testing.assert_array_equal(np.bincount(labels[chosen]), [5, 2, 0, 5])
    x = np.random.default_rng(0).normal(size=(39, 3)) + 3 * labels[:, None]
    found = fewshot_accuracies(x, labels, x, labels, num_classes=4, shots=(5, 25), seeds=(0,))
    assert set(found) == {(5, 0), (25, 0)}
    assert "3 of the 4 classes have fewer than 25 training images" in caplog.text


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shots": (5, -1)}, "`shots` must be positive"),
        ({"method": "svm"}, "`method` must be one of"),
        ({"l2": float("nan")}, "`l2` must be a positive number"),
        ({"l2": 1.0, "method": "knn"}, "with a method that has `l2`"),
        ({"train_labels": np.zeros(7, "int32")}, "`train_labels` must be .* one per example"),
        ({"test_labels": np.full(80, 3)}, "`test_labels` must be from 0 to 2"),
        ({"test_features": np.full((80, 5), np.nan)}, "`test_features` must be finite"),
    ],
)
def test_accuracies_that_would_mean_nothing_are_refused(changes, message):
    names = ("train_features", "train_labels", "test_features", "test_labels")
    options = dict(zip(names, clusters(), strict=True)) | {"num_classes": 3} | changes
    with pytest.raises(ValueError, match=message):
        fewshot_accuracies(**options)


def test_splits_that_overlap_are_refused():
    with pytest.raises(ValueError, match="must not overlap"):
        evaluate_fewshot(tiny_model(), "digits", train_split="train+test")


@pytest.mark.slow
def test_datasets_instead_of_a_name():
    """They keep their own preprocessing."""
    model = tiny_model()
    pair = [load("digits", split, 8, 50, central_crop_from=8) for split in ("train", "test")]
    expected = evaluate_fewshot(model, "digits", central_crop_from=8)
    assert evaluate_fewshot(model, pair) == expected
    pair[1] = load("digits", "test", 8, 50, classes=("0", "1"))
    with pytest.raises(ValueError, match="must have the same classes"):
        evaluate_fewshot(model, pair)
