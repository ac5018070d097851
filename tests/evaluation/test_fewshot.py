"""Few-shot accuracy of features: big_vision's examples and accuracies, and wrong arguments."""

import itertools
import json
import sys

import numpy as np
import pytest

from keras_vit.evaluation.classifiers import solve_least_squares
from keras_vit.evaluation.fewshot import choose_examples, evaluate_fewshot, fewshot_accuracies
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
    assert "3 of the 4 classes have fewer than 25 images" in caplog.text


def test_a_constant_feature_does_no_harm():
    train, labels, test, test_labels = clusters(noise=0.1)
    with_constant = [np.pad(x, ((0, 0), (0, 1)), constant_values=0.1) for x in (train, test)]
    found = fewshot_accuracies(with_constant[0], labels, with_constant[1], test_labels, 3)
    assert found == fewshot_accuracies(train, labels, test, test_labels, 3)
    assert min(found.values()) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": ()}, "`shots` must be positive integers or 'all'"),
        ({"shots": 5}, "`shots` must be positive integers.*Received: shots=5"),
        ({"shots": (0,)}, "`shots` must be positive"),
        ({"shots": (True,)}, "`shots` must be positive"),
        ({"shots": "all"}, "`shots` must be positive integers or 'all', one or more"),
        ({"seeds": ()}, "`seeds` must be integers from 0"),
        ({"seeds": (-1,)}, "`seeds` must be integers from 0"),
        ({"method": "svm"}, "`method` must be one of .*Received: method='svm'"),
        ({"l2": 0}, "`l2` must be a positive number"),
        ({"l2": float("nan")}, "`l2` must be a positive number"),
        ({"l2": 1.0, "method": "knn"}, "for a method that has it.*method='knn'"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        fewshot_accuracies(*clusters(), 3, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: np.zeros((40, 2, 2))}, "`train_features` must be"),
        ({1: np.zeros(7, "int32")}, r"`train_labels` as many.*\(40, 5\) and \(7,\)"),
        ({1: np.zeros(40)}, "`train_labels` must be integers"),
        ({1: np.zeros(40, "int32")}, "two classes or more"),
        ({3: np.full(80, 3)}, "`test_labels` must be integers from 0 to 2"),
        ({2: np.zeros((80, 4))}, "the same width. Received: 5 and 4"),
        ({2: np.full((80, 5), np.nan)}, "must be finite. Received: 80 examples"),
        ({2: np.zeros((0, 5)), 3: np.zeros(0, "int32")}, "`test_features` must be"),
    ],
)
def test_wrong_examples(changes, message):
    data = [changes.get(index, array) for index, array in enumerate(clusters())]
    with pytest.raises(ValueError, match=message):
        fewshot_accuracies(*data, 3)


@pytest.mark.parametrize("method", ["knn", "linear-probe"])
def test_scikit_learn_is_missing(method, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ValueError, match=rf"pip install 'keras-vit-zoo\[demo\]'. .*'{method}'"):
        evaluate_fewshot(None, "digits", method=method)


def test_splits_that_overlap():
    with pytest.raises(ValueError, match="must not overlap. Received: train_split='train\\+test'"):
        evaluate_fewshot(tiny_model(), "digits", train_split="train+test")
