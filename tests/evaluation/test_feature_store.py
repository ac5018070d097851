"""Features that were written once, read by few-shot evaluation and searched."""

import importlib.util
import shutil

import keras
import numpy as np
import pytest

from keras_vit.cli import main
from keras_vit.evaluation.feature_store import (
    FeatureStore,
    evaluate_stores,
    find_similar,
    nearest,
    read_features,
)
from keras_vit.evaluation.fewshot import evaluate_fewshot
from tests.fixtures.commands import error_of, run
from tests.fixtures.images import write_folder
from tests.fixtures.models import classifier

pytestmark = pytest.mark.backends("tensorflow", reason="the predictor is tested on each")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = write_folder(tmp_path_factory.mktemp("images") / "photos", count=30)
    (root / "cat" / "3.jpg").write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def stores(folder, tmp_path_factory, request):
    """A model, and directories of its features of the splits of the folder."""
    scratch = tmp_path_factory.mktemp("stores")
    keras.utils.set_random_seed(0)
    classifier().save(scratch / "model.keras")
    for split in ("train", "test"):
        command = ["predict", scratch / "model.keras", f"folder:{folder}", "--split", split]
        command += ["--output", scratch / split, "--outputs", "features", "--part-size", "9"]
        main(list(map(str, command)))
    return scratch


@pytest.mark.slow
def test_the_accuracy_is_that_of_the_model_itself(stores, folder, capsys):
    train, test = read_features(stores / "train"), read_features(stores / "test")
    model = keras.models.load_model(stores / "model.keras")
    for method in ("least-squares", "knn", "linear-probe"):
        expected = evaluate_fewshot(model, f"folder:{folder}", method=method, seeds=(0, 1))
        assert evaluate_stores(train, test, method=method, seeds=(0, 1)) == expected


def test_broken_images_have_no_features(stores):
    found = [read_features(stores / split) for split in ("train", "test")]
    assert sum(len(store.ids) for store in found) == 53
    for store in found:
        assert "cat/3.jpg" not in store.ids
        assert store.features.dtype == "float32" and np.isfinite(store.features).all()
        assert all(id.startswith(label) for id, label in zip(store.ids, store.labels, strict=True))


@pytest.mark.slow
def test_stores_of_one_split_or_of_two_models_are_refused(stores, folder, tmp_path, capsys):
    train = ("fewshot", stores / "train", "--data")
    with pytest.raises(SystemExit):
        run(capsys, *train, stores / "train")
    assert "must be different" in capsys.readouterr().err
    other = keras.models.load_model(stores / "model.keras")
    other.get_layer("head").bias.assign([1, 2, 3])
    other.save(tmp_path / "other.keras")
    options = ("--outputs", "features", "--output", tmp_path / "other")
    run(capsys, "predict", tmp_path / "other.keras", f"folder:{folder}", *options)
    with pytest.raises(SystemExit):
        run(capsys, *train, tmp_path / "other")
    assert "have the same model, dtype" in capsys.readouterr().err


def test_rows_that_are_missing_are_named(stores, tmp_path):
    shutil.copytree(stores / "train", tmp_path / "train")
    min((tmp_path / "train").glob("*.parquet")).unlink()
    with pytest.raises(ValueError, match="All 4. images must have a row: run the command"):
        read_features(tmp_path / "train")


def test_search(stores, folder, tmp_path, capsys):
    store = read_features(stores / "train")
    copy = shutil.copy(folder / store.ids[4], tmp_path / "query.jpg")
    arguments = ("search", stores / "train", copy, "--top", 2, "--picture", tmp_path / "near.png")
    query, first, second = run(capsys, *arguments).splitlines()[0].split("  ")
    assert query == str(copy) and first == f"{store.ids[4]} 1.000" and second
    assert (tmp_path / "near.png").stat().st_size > 1000
    lines = run(capsys, "search", stores / "train", stores / "test", "--top", 1).splitlines()
    assert len(lines) == len(read_features(stores / "test").ids)


def test_pictures_that_have_changed_are_not_drawn(stores, folder, tmp_path, capsys):
    copy = shutil.copytree(folder, tmp_path / "photos")
    command = ("predict", stores / "model.keras", copy, "--outputs", "features")
    run(capsys, *command, "--output", tmp_path / "found")
    shutil.copy(copy / "dog" / "1.jpg", copy / "cat" / "1.jpg")
    search = ("search", tmp_path / "found", copy / "cat" / "0.jpg", "--picture", tmp_path / "a.png")
    line = error_of(capsys, *search)
    assert "which have changed" in line and not (tmp_path / "a.png").exists()


def test_a_model_that_has_changed_is_not_searched_with(stores, folder, tmp_path, capsys):
    shutil.copytree(stores, tmp_path / "copy")
    text = (tmp_path / "copy" / "train" / "_predictions.json").read_text()
    moved = text.replace(str(stores / "model.keras"), str(tmp_path / "copy" / "model.keras"))
    (tmp_path / "copy" / "train" / "_predictions.json").write_text(moved)
    model = keras.models.load_model(stores / "model.keras")
    model.get_layer("head").bias.assign([1, 2, 3])
    model.save(tmp_path / "copy" / "model.keras")
    error = error_of(capsys, "search", tmp_path / "copy" / "train", folder / "cat" / "0.jpg")
    assert "has changed since" in error


@pytest.fixture(params=["faiss", "numpy"])
def library(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    else:
        pytest.importorskip("faiss")


def test_the_nearest_are_those_of_scikit_learn(library):
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(0)
    features, queries = rng.normal(size=(500, 16)), rng.normal(size=(1500, 16))
    indices, similarities = nearest(features, queries, 7)
    neighbors = NearestNeighbors(n_neighbors=7, metric="cosine").fit(features)
    distances, expected = neighbors.kneighbors(queries)
    np.testing.assert_allclose(similarities, 1 - distances, rtol=0, atol=1e-6)
    assert np.mean(indices == expected) > 0.999
    assert nearest(features, queries, 600)[0].shape == (1500, 500)


def test_similar_images_of_other_sets(library):
    stores = [
        FeatureStore(np.array(list(ids), object), np.array(features, "float32"), None, {})
        for ids, features in (
            ("abcd", [[1, 0.1, 0], [1, 1, 1], [0, 0, 2.0], [0, 1, 0.05]]),
            ("xy", [[1, 0, 0], [0, 1, 0]]),
            ("z", [[0, 0, 1]]),
        )
    ]
    found = find_similar(stores[0], stores[1:], 0.9)
    assert [pair[1:] for pair in found.pairs] == [("c", 1, "z"), ("d", 0, "y"), ("a", 0, "x")]
    assert found.ids == ["c", "d", "a"]


def test_duplicates_by_features(stores, folder, tmp_path, capsys):
    copies = tmp_path / "copies" / "cat"
    copies.mkdir(parents=True)
    for number in (1, 2):
        shutil.copy(folder / "cat" / f"{number}.jpg", copies)
    options = ("--outputs", "features", "--output", tmp_path / "features")
    run(capsys, "predict", stores / "model.keras", tmp_path / "copies", *options)
    arguments = ("deduplicate", stores / "train", tmp_path / "features", "--similarity", 0.99999)
    run(capsys, *arguments, "--output", tmp_path / "ids.txt")
    _, *lines = (tmp_path / "ids.txt").read_text().splitlines()
    ids = {id for id in read_features(stores / "train").ids if id in ("cat/1.jpg", "cat/2.jpg")}
    # Some of the others are hardly different.
    assert ids <= set(lines) and len(lines) < 20
