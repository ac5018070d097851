"""Accuracy of a classifier, each image counted once."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.cli.evaluate import write_confusion
from keras_vit.cli.export import facts_of
from keras_vit.data import load
from keras_vit.evaluation.classification import evaluate, predictions
from keras_vit.evaluation.extraction import extract_features, split_features
from keras_vit.evaluation.metrics import confusion_matrix, expected_calibration_error
from keras_vit.models import vision_transformer
from keras_vit.training.recipes import RECIPES
from keras_vit.training.runs.saved_models import save_model
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.tiny import TINY, images

SIZE = (8, 8)


def classifier(num_classes):
    model = vision_transformer(**{**TINY, "image_size": 8, "num_classes": num_classes})
    model.get_layer("head").kernel.assign(images(8, num_classes))
    return model


@pytest.mark.parametrize("classes", [None, ("0", "1", "2")])
def test_accuracy_is_numpys(classes):
    # 50 does not divide the images: the last batch is smaller and must count once.
    test = load("digits", "test", SIZE, 50, classes=classes)
    model = classifier(len(test.class_names))
    results = evaluate(model, test)
    batches = list(test.as_numpy_iterator())
    logits = np.concatenate([to_numpy(model(batch)) for batch, _ in batches]).astype("float64")
    labels = np.concatenate([labels for _, labels in batches])
    assert results["images"] == len(labels) == test.num_examples
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


def test_each_image_counts_once_where_some_are_skipped(tmp_path):
    write_folder(tmp_path / "train", ("cat", "dog"), count=2)
    write_folder(tmp_path / "test", ("cat", "dog"), count=11)
    for name in ("cat/2.jpg", "dog/0.jpg", "dog/9.jpg"):
        (tmp_path / "test" / name).write_bytes(b"no image")
    test = load(f"folder:{tmp_path}", "test", SIZE, 4)
    model = classifier(2)
    found = predictions(model, test)
    assert np.bincount(found.labels).tolist() == [10, 9]
    assert confusion_matrix(found.labels, found.predicted, 2).sum() == 19
    # And in another pass.
    assert evaluate(model, test)["images"] == 19
    assert len(test.skipped) == 3


def test_predictions_are_in_the_datasets_order():
    test = load("digits", "test", SIZE, 50)
    model = classifier(10)
    found = predictions(model, test)
    np.testing.assert_array_equal(found.labels, np.concatenate([y for _, y in list(test)]))
    logits = to_numpy(keras.ops.concatenate([model(batch) for batch, _ in test]))
    np.testing.assert_array_equal(found.predicted, logits.argmax(-1))
    np.testing.assert_array_equal(found.is_right, found.predicted == found.labels)
    assert found.class_names == tuple(map(str, range(10)))


def test_a_share_that_is_no_processes_stands_alone():
    test = load("digits", "test", SIZE, 50, shard=(1, 3))
    assert evaluate(classifier(10), test)["images"] == test.num_examples == 120


def test_equal_logits_are_no_hits():
    model = classifier(10)
    model.get_layer("head").kernel.assign(np.zeros((8, 10)))
    test = load("digits", "test", SIZE, 50)
    found = predictions(model, test)
    # Like the predicted class, the first five of all.
    np.testing.assert_array_equal(found.is_in_top_5, found.labels < 5)
    np.testing.assert_array_equal(found.is_right, found.labels == 0)


def several_labels(labels):
    """Digits whose labels are others, a row of zeros and ones for each image."""
    digits = load("digits", "test", SIZE, 50)
    images = np.concatenate([batch for batch, _ in digits.as_numpy_iterator()])[: len(labels)]
    # As `load` gives a dataset of several labels.
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    for name in ("class_names", "skipped", "shard"):
        setattr(dataset, name, getattr(digits, name))
    return dataset, images


def test_images_of_several_labels():
    """ImageNet-ReaL: right is each of an image's labels, and who has none does not count."""
    model = classifier(10)
    rng = np.random.default_rng(0)
    labels = (rng.random((30, 10)) < 0.2).astype("float32")
    labels[[3, 8, 9, 10, 11, 29]] = 0  # the third batch as a whole
    dataset, images = several_labels(labels)
    predicted = to_numpy(model(images)).argmax(-1)
    right = [labels[i, predicted[i]] for i in range(30) if labels[i].any()]
    assert 0 < sum(right) < len(right) < 30
    results = evaluate(model, dataset)
    assert results == {"images": len(right), "accuracy": pytest.approx(np.mean(right))}
    assert len(predictions(model, dataset).predicted) == len(right)


def test_no_image_with_a_label():
    dataset, _ = several_labels(np.zeros((6, 10), "float32"))
    with pytest.raises(ValueError, match="must have an image with a label"):
        evaluate(classifier(10), dataset)


def test_the_models_compilation_stays():
    model = classifier(10)
    optimizer = keras.optimizers.SGD()
    model.compile(optimizer, "mse")
    evaluate(model, load("digits", "test", SIZE, 50))
    assert model.optimizer is optimizer


def test_other_classes():
    with pytest.raises(ValueError, match="must have the model's 3 classes.*10 classes"):
        evaluate(classifier(3), load("digits", "test", SIZE, 50))


def test_logits_that_are_not_finite():
    model = classifier(10)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.full((8, 10), np.nan))
    test = load("digits", "test", SIZE, 50, classes=None)
    with pytest.raises(ValueError, match="finite logits. Received: 359 of 359 images without"):
        evaluate(model, test)


def test_a_head_that_is_not_trained(caplog):
    model = classifier(10)
    test = load("digits", "test", SIZE, 50)
    evaluate(model, test)
    assert not caplog.records
    model.get_layer("head").kernel.assign(np.zeros((8, 10)))
    evaluate(model, test)
    (record,) = caplog.records
    assert "class 0 is predicted for every image" in record.getMessage()


@pytest.mark.parametrize("function", [evaluate, extract_features])
def test_a_dataset_without_an_end(function):
    with pytest.raises(ValueError, match="The dataset must have an end"):
        function(classifier(10), load("digits", "test", SIZE, 50, repeat=True))


def test_features_of_a_cache_tell_what_was_skipped(tmp_path, caplog):
    for split in ("train", "test"):
        write_folder(tmp_path / "photos" / split, ("cat", "dog"), count=4)
    (tmp_path / "photos" / "test" / "cat" / "0.jpg").write_bytes(b"\xff\xd8\xff no image")
    model = classifier(2)
    for message in ("1 of 8 images were skipped: ", "1 of 8 images were skipped when"):
        caplog.clear()
        split_features(model, f"folder:{tmp_path / 'photos'}", "test", cache=tmp_path / "c")
        assert message in caplog.text


def test_a_confusion_matrix_is_written_whole(tmp_path):
    path = tmp_path / "confusion.csv"
    write_confusion(np.eye(2, dtype=int), ["cat", "dog"], path)
    before = path.read_text()
    with pytest.raises(ValueError, match="zip"):
        write_confusion(np.eye(3, dtype=int), ["cat", "dog"], path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


LINES = [
    {"epoch": 0, "val_loss": 0.5, "val_accuracy": 0.75},
    {"epoch": 1, "val_loss": 0.6, "val_accuracy": 0.5},
    {"epoch": 2, "val_loss": float("nan"), "val_accuracy": 1.0},
]


@pytest.fixture
def run_directory(tmp_path):
    """What a run of 8 pixels leaves, and models of its id."""
    return lambda lines=LINES, **changes: _write_run(tmp_path, lines, changes)


def _write_run(tmp_path, lines, changes):
    recipe = dataclasses.replace(RECIPES["digits_pretrain"], image_size=8, **changes)
    run = {"id": "0f", "recipe": dataclasses.asdict(recipe), "class_names": list("ab")}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = classifier(2)
    for name in ("best", "last", "averaged"):
        save_model(model, tmp_path / f"{name}.keras", {"run": "0f", "class_names": list("ab")})
    return tmp_path, model


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"best": 0.75, "last": 0.5, "averaged": None}),
        # The run evaluates the averages.
        ({"average_momentum": 0.9}, {"best": 0.75, "last": None, "averaged": 0.5}),
    ],
)
def test_validation_accuracy_of_an_export(changes, expected, run_directory):
    workdir, model = run_directory(**changes)
    for name, accuracy in expected.items():
        assert facts_of(model, workdir / f"{name}.keras").get("validation_accuracy") == accuracy
        facts = facts_of(model, workdir / f"{name}.keras", quantize="int8")
        assert facts.get("validation_accuracy_before_quantization") == accuracy
        assert "validation_accuracy" not in facts
    resized = vision_transformer(**{**TINY, "image_size": 16, "num_classes": 2})
    assert "validation_accuracy" not in facts_of(resized, workdir)


def test_metrics_that_cannot_be_right(run_directory):
    workdir, model = run_directory([{**LINES[0], "val_accuracy": 75}])
    with pytest.raises(ValueError, match=r"accuracies from 0 to 1. Received: .*metrics.jsonl"):
        facts_of(model, workdir)
    (workdir / "metrics.jsonl").write_text('{"epoch": 0, "val_')
    with pytest.raises(ValueError, match=r"a line of JSON for each epoch.*metrics.jsonl"):
        facts_of(model, workdir)
