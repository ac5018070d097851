"""Runs on few and uneven images: balance of classes, early stopping, frozen backbones."""

import collections

import keras
import numpy as np
import pytest
import sklearn.linear_model
import tensorflow as tf

from keras_vit.data import load
from keras_vit.data.sources.feature_source import compute_features
from keras_vit.models.features import feature_extractor
from keras_vit.models.keras_files import load_model
from keras_vit.training.callbacks import StopEarly, find_best
from keras_vit.training.tasks import make_task
from keras_vit.training.trainer import load_training_data, train
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import CLASSES, small_fit, small_model, small_recipe
from tests.fixtures.stopped import assert_same_variables, stopped

COUNTS = {"ant": 12, "bee": 6, "cow": 4}
LOSSES = [2.0, 1.0, float("nan"), 1.5, 1.0, 0.5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("uneven")
    for split, count in (("train", 12), ("validation", 2), ("test", 1)):
        write_folder(root / split, COUNTS, count)
    for name, count in COUNTS.items():
        for number in range(count, 12):
            (root / "train" / name / f"{number}.jpg").unlink()
    return f"folder:{root}"


def seeded_model(recipe):
    keras.utils.set_random_seed(0)
    return small_model(recipe)


def labels_of(dataset, batches):
    return np.concatenate([labels for _, labels in dataset.take(batches).as_numpy_iterator()])


@pytest.mark.slow
def test_rare_classes_are_repeated(folder):
    options = {"image_size": 16, "batch_size": 12, "training": True, "repeat": True}
    balanced = load(folder, "train", balanced=True, **options)
    assert balanced.info.num_examples == 36
    assert collections.Counter(labels_of(balanced, 3).tolist()) == {0: 12, 1: 12, 2: 12}
    # The images, whose digest a run records, are there once.
    dataset = balanced.info.dataset
    assert dataset.source.num_examples == 22
    rest = labels_of(dataset.from_step(2).batches(), 4)
    np.testing.assert_array_equal(rest, labels_of(balanced, 6)[24:])


def test_images_of_a_test_split_come_once(folder):
    with pytest.raises(ValueError, match=r"`balanced` must be false without `training`"):
        load(folder, "test", 16, 12, balanced=True)


@pytest.mark.slow
def test_a_broken_image_of_a_rare_class_is_skipped_each_time(tmp_path):
    root = write_folder(tmp_path / "train", ["ant"], 12).parent
    write_folder(root / "train", ["bee"], 4)
    write_folder(root / "test", ["ant", "bee"], 1)
    (root / "train/bee/0.jpg").write_bytes(b"no image")
    data = load(f"folder:{root}", "train", 16, 7, training=True, balanced=True, repeat=True)
    first = labels_of(data, 6)
    assert collections.Counter(first[:21].tolist()) == {0: 12, 1: 9}
    assert list(data.info.skipped.reasons) == ["train/bee/0.jpg"]
    resumed = data.info.dataset.from_step(3, list(data.info.skipped.reasons)).batches()
    np.testing.assert_array_equal(labels_of(resumed, 3), first[21:])


@pytest.mark.slow
def test_features_take_the_place_of_images(folder):
    """Those of the same images, in the order of the training images."""
    model = small_model(small_recipe(image_size=16))
    extract = feature_extractor(model).predict_on_batch
    plain = load(folder, "train", 16, 8, training=True, repeat=True, balanced=True)
    plain = plain.info.dataset
    replaced = plain.with_features(extract)
    for dataset, other in ((plain, replaced), (plain.from_step(3), replaced.from_step(3))):
        pairs = tf.data.Dataset.zip(dataset.batches(), other.batches()).take(6).as_numpy_iterator()
        for (images, labels), (features, same_labels) in pairs:
            np.testing.assert_array_equal(labels, same_labels)
            np.testing.assert_allclose(extract(images), features, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_frozen_run_trains_the_head_alone(folder, tmp_path):
    """Its accuracy is that of a logistic regression on the features."""
    recipe = small_recipe(image_size=16, batch_size=11, steps=300, freeze=True, learning_rate=1.0)
    model = small_model(recipe)
    before = {v.path: np.array(to_numpy(v.value)) for v in model.weights}
    run = train(recipe, model, folder, tmp_path / "run")
    best = load_model(tmp_path / "run/last.keras")
    for variable in best.weights:
        is_same = np.array_equal(before[variable.path], to_numpy(variable.value))
        assert is_same == (not variable.path.startswith("head/"))
    features, labels = compute_features(
        load(folder, "train", 16, 32), feature_extractor(model).predict_on_batch
    )
    other = sklearn.linear_model.LogisticRegression(C=1e3, max_iter=2000).fit(features, labels)
    assert run.history[-1]["accuracy"] == pytest.approx(other.score(features, labels), abs=0.05)


@pytest.mark.slow
def test_a_frozen_run_is_resumed_bit_for_bit(folder, tmp_path):
    recipe = small_recipe(image_size=16, batch_size=11, freeze=True, class_balance="sampling")
    whole = train(recipe, seeded_model(recipe), folder, tmp_path / "whole")

    with stopped(7):
        train(recipe, seeded_model(recipe), folder, tmp_path / "stopped")
    rest = train(recipe, seeded_model(recipe), folder, tmp_path / "stopped", resume=True)
    assert_same_variables(whole.model.weights, rest.model.weights)
    assert [m["val_loss"] for m in rest.history] == [m["val_loss"] for m in whole.history]


def test_class_weights_are_scikit_learns(folder):
    from sklearn.utils.class_weight import compute_class_weight

    recipe = small_recipe(image_size=16, class_balance="weights")
    task = make_task(recipe, small_model(recipe), *load_training_data(recipe, folder))
    labels = np.repeat([0, 1, 2], [*COUNTS.values()])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert task.class_weights == pytest.approx(dict(enumerate(expected)))


@pytest.mark.slow
def test_a_run_with_class_weights_has_a_balanced_accuracy(folder, tmp_path):
    recipe = small_recipe(image_size=16, batch_size=8, class_balance="weights", steps=8)
    run = train(recipe, small_model(recipe), folder, tmp_path / "run")
    assert 0 <= run.history[-1]["val_balanced_accuracy"] <= 1


def test_the_best_epoch_is_that_of_the_metric():
    history = [{"val_loss": loss, "val_accuracy": 0.5, "val_x": -loss} for loss in LOSSES]
    assert find_best([]) == -1
    assert find_best(history, "val_loss") == find_best(history) == 5
    assert find_best(history[:5], "val_loss") == find_best(history[:5], "val_x") == 1
    assert find_best([{"loss": 1.0}, {"loss": 2.0}]) == 1


@pytest.mark.parametrize(("patience", "length"), [(1, 3), (2, 4), (3, 5), (4, 6)])
def test_a_run_stops_after_epochs_without_a_better_model(patience, length):
    history = []
    stop = StopEarly(history, patience, "val_loss")
    stop.set_model(keras.Model())
    stop.model.stop_training = False
    for epoch, loss in enumerate(LOSSES):
        history.append({"val_loss": loss})
        stop.on_epoch_end(epoch)
        if stop.model.stop_training:
            break
    assert len(history) == length


@pytest.mark.slow
def test_a_run_that_has_stopped_is_not_trained_on(tmp_path):
    # A rate of almost 0 changes no prediction.
    recipe = small_recipe(steps=40, learning_rate=1e-30, patience=2, monitor="val_accuracy")
    history = small_fit(tmp_path / "run", recipe)
    assert len(history) == 3 < recipe.epoch_lengths(374)[0]
    assert small_fit(tmp_path / "run", recipe, resume=True) == history


@pytest.mark.parametrize(
    ("changes", "validation"), [({"monitor": "val_f1"}, "validation"), ({"patience": 2}, None)]
)
def test_an_end_by_a_metric_that_no_epoch_has_is_refused(changes, validation):
    recipe = small_recipe(**changes)
    data = load_training_data(recipe, "digits", CLASSES, validation=validation)
    with pytest.raises(ValueError, match="`monitor`"):
        make_task(recipe, small_model(recipe), *data)


@pytest.mark.slow
def test_every_class_comes_early_in_a_balanced_pass(tmp_path):
    for name, count in (("ant", 4), ("bee", 4), ("cow", 40)):
        write_folder(tmp_path / "train", [name], count)
    write_folder(tmp_path / "test", ("ant", "bee", "cow"), count=1)
    data = load(f"folder:{tmp_path}", "train", 16, 30, training=True, repeat=True, balanced=True)
    assert set(labels_of(data, 1)) == {0, 1, 2}
