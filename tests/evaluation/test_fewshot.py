"""Few-shot accuracy of features, and the cache that they are kept in."""

import itertools
import json
import logging
import sys

import keras
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import StandardScaler

from keras_vit.cli.fewshot import table_rows
from keras_vit.data import load
from keras_vit.evaluation import extraction
from keras_vit.evaluation.classifiers import solve_least_squares
from keras_vit.evaluation.extraction import extract_features, split_features
from keras_vit.evaluation.fewshot import choose_examples, evaluate_fewshot, fewshot_accuracies
from keras_vit.models import features, replace_head, vision_transformer
from tests.cli.test_cli import error_of, run
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.reference import REFERENCE, read_npz
from tests.fixtures.tiny import TINY

CASE = "x1_fewshot_lsr"
ACCURACIES = json.loads((REFERENCE / f"{CASE}.json").read_text())["accuracies"]


@pytest.fixture(scope="module")
def arrays():
    return read_npz(f"{CASE}.io.npz")


@pytest.fixture
def model():
    return tiny_model()


def tiny_model(**options):
    keras.utils.set_random_seed(0)
    return vision_transformer(**{**TINY, "depth": 1, "image_size": 8, **options})


def clusters(num_classes=3, count=40, width=5, noise=1.0):
    """Features that tell classes apart, mostly: twice as many tests as examples."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(3 * count) % num_classes)
    centres = rng.normal(size=(num_classes, width))
    array = (centres[labels] + noise * rng.normal(size=(3 * count, width))).astype("float32")
    return array[:count], labels[:count], array[count:], labels[count:]


def examples_of(arrays, kind):
    return [arrays[f"{kind}/{name}"] for name in ("x_train", "y_train", "x_test", "y_test")]


@pytest.mark.parametrize(("name", "expected"), ACCURACIES)
def test_big_visions_accuracies(arrays, name, expected):
    kind, seed, shots, l2 = name.split("/")
    seed, shots = int(seed.removeprefix("seed")), int(shots.removeprefix("shots"))
    l2 = float(l2.removeprefix("l2_"))
    data = examples_of(arrays, kind)
    found = fewshot_accuracies(*data, num_classes=4, shots=(shots,), seeds=(seed,), l2=l2)
    assert found == {(shots, seed): pytest.approx(expected, abs=1e-6)}


def test_big_visions_examples_and_weights(arrays):
    names = [name for name in arrays if name.endswith("/indices")]
    assert len(names) == 15
    for name in names:
        kind, seed, shots, _ = name.split("/")
        seed, shots = int(seed.removeprefix("seed")), int(shots.removeprefix("shots"))
        train, labels, *_ = examples_of(arrays, kind)
        chosen = choose_examples(labels, 4, shots, seed)
        np.testing.assert_array_equal(chosen, arrays[name])
        x = train[chosen]
        x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-5)
        x = np.pad(x, ((0, 0), (0, 1)), constant_values=100.0)
        weights = solve_least_squares(x, 2 * np.eye(4)[labels[chosen]] - 1, 1024)
        expected = arrays[name.replace("indices", "l2_1024/weights")]
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)


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


def test_more_shots_include_the_examples_of_less():
    labels = np.random.default_rng(0).integers(0, 5, 300)
    chosen = [set(choose_examples(labels, 5, shots, seed=1)) for shots in (1, 5, 10, 25, "all")]
    assert [len(part) for part in chosen] == [5, 25, 50, 125, 300]
    assert all(less < more for less, more in itertools.pairwise(chosen))
    other = set(choose_examples(labels, 5, 25, seed=2))
    assert other != chosen[3]


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


def test_many_tests_are_scored_in_parts(monkeypatch):
    data = clusters()
    expected = fewshot_accuracies(*data, 3)
    monkeypatch.setattr("keras_vit.evaluation.classifiers._CHUNK", 7)
    assert fewshot_accuracies(*data, 3) == expected


def test_nearest_neighbours_are_weighted_votes():
    train, labels, test, test_labels = clusters()
    similarity = cosine_similarity(test.astype("float64"), train.astype("float64"))
    votes = np.zeros((len(test), 3))
    for row, similarities in enumerate(similarity):
        for index in np.argsort(-similarities)[:20]:
            votes[row, labels[index]] += np.exp(similarities[index] / 0.07)
    found = fewshot_accuracies(train, labels, test, test_labels, 3, method="knn")
    expected = np.mean(votes.argmax(axis=1) == test_labels)
    assert found == {("all", 0): pytest.approx(expected, abs=1e-9)}
    # Fewer examples than neighbours.
    few = fewshot_accuracies(train, labels, test, test_labels, 3, shots=(1, 2), method="knn")
    assert len(few) == 6


@pytest.mark.parametrize(("l2", "inverse"), [(None, 1.0), (100.0, 0.01)])
def test_linear_probe_is_scikit_learns(l2, inverse):
    train, labels, test, test_labels = clusters()
    scaler = StandardScaler().fit(train.astype("float64"))
    probe = LogisticRegression(C=inverse, max_iter=1000).fit(scaler.transform(train), labels)
    expected = probe.score(scaler.transform(test), test_labels)
    found = fewshot_accuracies(
        train, labels, test, test_labels, 3, shots=("all", 5), method="linear-probe", l2=l2
    )
    assert list(found) == [("all", 0), (5, 0), (5, 1), (5, 2)]
    assert found["all", 0] == pytest.approx(expected, abs=1e-9)


def test_a_linear_probe_that_does_not_converge_says_so(monkeypatch, caplog):
    monkeypatch.setattr("keras_vit.evaluation.classifiers._MAX_ITERATIONS", 1)
    fewshot_accuracies(*clusters(), 3, method="linear-probe")
    assert "not converged after 1 iterations" in caplog.text


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
        ({"l2": 1.0, "method": "knn"}, "of a method that has it.*method='knn'"),
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
    with pytest.raises(ValueError, match=rf"pip install 'keras-vit\[demo\]'. .*'{method}'"):
        evaluate_fewshot(None, "digits", method=method)


def test_features_and_labels_belong_together(model, tmp_path):
    """Of images that cannot be decoded neither is there."""
    root = write_folder(tmp_path / "photos", ("cat", "dog"), count=10)
    paths = sorted(root.rglob("*.jpg"))
    for path in (paths[3], paths[12]):
        path.write_bytes(b"no image")
    options = {"image_size": 8, "batch_size": 4}
    data = load(f"folder:{root}", "train+validation+test", **options)
    found, labels = extract_features(model, data)
    assert len(data.skipped) == 2
    assert found.shape == (18, 8)
    np.testing.assert_array_equal(labels, [0] * 9 + [1] * 9)
    images = np.concatenate([images for images, _ in data.as_numpy_iterator()])
    np.testing.assert_allclose(found, features(model, images), rtol=0, atol=1e-5)


def test_models_that_do_not_give_a_vector():
    for options in ({"pooling": None, "num_classes": 0}, {"image_channels": 1}):
        with pytest.raises(ValueError, match="`model` must map RGB images to a vector"):
            split_features(tiny_model(**options), "digits", "test")


class Cache:
    """A folder of images, and how often its features were computed, which here are random."""

    def __init__(self, root, path, monkeypatch):
        self.root, self.path, self.computed = root, path, 0

        def compute(extractor, dataset):
            self.computed += 1
            rng = np.random.default_rng(self.computed)
            count = dataset.num_examples
            return rng.normal(size=(count, 8)).astype("float32"), rng.integers(0, 3, count)

        monkeypatch.setattr(extraction, "_extract", compute)

    def features(self, model, split="train", **options):
        """Whether they were computed, and the features and labels."""
        before = self.computed
        found = split_features(model, f"folder:{self.root}", split, cache=self.path, **options)
        return self.computed > before, *found[:2]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    root = write_folder(tmp_path / "photos", ("cat", "dog", "eel"), count=5)
    return Cache(root, tmp_path / "new" / "cache", monkeypatch)


def test_cache_serves_as_long_as_nothing_changed(cache, model, tmp_path, caplog):
    caplog.set_level(logging.INFO, "keras_vit")
    computed, expected, labels = cache.features(model)
    assert computed
    # The same from a file, with another head, after other layers were made, under another path.
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    cache.root = cache.root.rename(tmp_path / "moved")
    for same in (model, again, replace_head(model, 7)):
        cache.root.rename(tmp_path / "photos")
        cache.root = tmp_path / "photos"
        computed, found, found_labels = cache.features(same, batch_size=3)
        assert not computed
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(found_labels, labels)
        cache.root = cache.root.rename(tmp_path / "moved")
    assert "features of 12 images are taken from" in caplog.text
    assert [path.suffix for path in cache.path.iterdir()] == [".npz"]


def test_cache_of_something_else_is_not_used(cache, model):
    def is_computed(model=model, **options):
        first, *_ = cache.features(model, **options)
        assert not cache.features(model, **options)[0]
        return first

    assert is_computed()
    assert is_computed(split="test")
    assert is_computed(classes=("cat", "dog"))
    assert is_computed(central_crop_from=12)
    assert is_computed(tiny_model(image_size=12))
    # The same weights, and others.
    assert is_computed(tiny_model(activation="gelu"))
    model.get_layer("block_0").weights[0].assign_add(np.full(8, 1e-6))
    assert is_computed(model)
    # An image, a label, an image more.
    picture = cache.root / "cat" / "0.jpg"
    size = picture.stat().st_size
    changed = bytearray(picture.read_bytes())
    changed[-10] ^= 1
    picture.write_bytes(changed)
    assert picture.stat().st_size == size
    everything = "train+validation+test"
    assert is_computed(split=everything)
    picture.rename(cache.root / "dog" / "9.jpg")
    assert is_computed(split=everything)
    (cache.root / "dog" / "new.png").write_bytes(encode(random_image()))
    assert is_computed(split=everything)


def test_a_cache_that_is_damaged_or_of_something_else_is_renewed(cache, model, caplog):
    cache.features(model)
    (path,) = cache.path.iterdir()
    cache.features(tiny_model(activation="gelu"))
    (other,) = set(cache.path.iterdir()) - {path}
    whole = path.read_bytes()
    for content, reason in [
        (whole[: len(whole) // 2], "is damaged"),
        (b"", "is damaged"),
        (whole.replace(b"NUMPY", b"NUMPX"), "is damaged"),
        (other.read_bytes(), "is of another model or dataset"),
    ]:
        caplog.clear()
        path.write_bytes(content)
        assert cache.features(model)[0]
        messages = [record.getMessage() for record in caplog.records]
        assert messages == [f"{path} {reason}; its features are computed anew"]
    assert not cache.features(model)[0]
    # What is pickled is not read.
    np.savez(path, features=np.array([{}], object), labels=np.zeros(1), digest="")
    assert cache.features(model)[0]


def test_a_cache_that_cannot_be_written(cache, model, monkeypatch, caplog, tmp_path):
    cache.path = tmp_path / "file"
    cache.path.touch()
    with pytest.raises(ValueError, match="`cache` must be a directory that can be written"):
        cache.features(model)
    assert cache.computed == 0
    cache.path = tmp_path / "full"

    def fail(*arguments, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    _, found, _ = cache.features(model)
    assert len(found) == 12
    assert "features are not kept" in caplog.text
    assert not list(cache.path.iterdir())


def test_splits_that_overlap(model):
    with pytest.raises(ValueError, match="must not overlap. Received: train_split='train\\+test'"):
        evaluate_fewshot(model, "digits", train_split="train+test")


def test_command(capsys, model, tmp_path):
    model.save(tmp_path / "model.keras")
    path, classes = tmp_path / "x", ("7", "8", "9")
    command = ("fewshot", tmp_path / "model.keras", "--data", "digits", "--cache", path)
    command = (*command, "--classes", *classes)
    first = run(capsys, *command)
    lines = first.splitlines()
    assert lines[0].split() == ["shots", "accuracy", "seeds"]
    accuracies = evaluate_fewshot(model, "digits", cache=path, classes=classes)
    for line, shots in zip(lines[1:], (1, 5, 10, 25), strict=True):
        values = [accuracies[shots, seed] for seed in range(3)]
        mean, spread = np.mean(values), np.std(values, ddof=1)
        assert line.split() == [str(shots), f"{mean:.4f}", "±", f"{spread:.4f}", "3"]
    assert accuracies[25, 0] > 1 / 3
    assert run(capsys, *command) == first
    options = ("--method", "knn", "--shots", "3", "all", "--seeds", "2")
    lines = run(capsys, *command, *options).splitlines()
    assert [line.split()[0] for line in lines] == ["shots", "3", "all"]
    assert lines[2].split()[-1] == "1"
    assert len(list(path.iterdir())) == 2


def test_table_of_one_seed():
    assert table_rows({(1, 0): 0.25, ("all", 0): 0.5}) == [
        ("1", "0.2500", "1"),
        ("all", "0.5000", "1"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "digits", "--seeds", 0), "`seeds` must be"),
        (("--data", "digits", "--shots", 0), "`shots` must be"),
        (("--data", "digits", "--l2", -1), "`l2` must be"),
        (("--data", "digits"), "`model` must be an existing file"),
    ],
)
def test_mistakes_of_the_command(capsys, options, message):
    assert message in error_of(capsys, "fewshot", "absent.keras", *options)
