"""`keras-vit evaluate`: what it prints and writes of the digits."""

import csv
import re

import keras
import numpy as np
import pytest
import sklearn.metrics

import keras_vit
from keras_vit.cli.command import plain_table
from keras_vit.data import load
from keras_vit.evaluation.metrics import COLUMNS, class_rows
from keras_vit.experiments import reported
from tests.fixtures.commands import error_of, run
from tests.fixtures.contract import to_numpy
from tests.fixtures.features import digits_classifier
from tests.fixtures.images import write_folder
from tests.fixtures.models import classifier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "digits.keras"
    keras.utils.set_random_seed(0)
    digits_classifier(10).save(path)
    return path


def test_the_confusion_matrix_is_that_of_scikit_learn(model, tmp_path, capsys):
    table, figure = tmp_path / "confusion.csv", tmp_path / "confusion.png"
    out = run(
        capsys,
        *("evaluate", model, "--data", "digits", "--batch-size", 50, "--per-class"),
        *("--confusion", table, "--confusion-figure", figure),
    )
    batches = list(load("digits", "test", 8, 50).as_numpy_iterator())
    labels = np.concatenate([labels for _, labels in batches])
    trained = keras.models.load_model(model)
    predicted = np.concatenate([to_numpy(trained(images)).argmax(-1) for images, _ in batches])
    matrix = sklearn.metrics.confusion_matrix(labels, predicted)
    header, *rows = csv.reader(table.read_text().splitlines())
    assert header == ["class", *map(str, range(10))]
    np.testing.assert_array_equal(np.array(rows)[:, 1:].astype(int), matrix)
    assert f"accuracy: {np.trace(matrix) / 359:.4f}\n" in out
    assert plain_table(COLUMNS, list(class_rows(matrix, header[1:]))) in out
    assert keras.utils.img_to_array(keras.utils.load_img(figure)).std() > 10


def test_a_reported_accuracy_is_compared_by_its_name(model, capsys, monkeypatch):
    row = reported.Reported("tiny", "ViT_Ti16", "cifar10", 97.0, 0.1, "nobody")
    monkeypatch.setattr(reported, "OF_CHECKPOINTS", (row,))
    monkeypatch.setattr(reported, "builder_of", lambda model: "ViT_Ti16")
    arguments = ["evaluate", model, "--data", "digits"]
    out = run(capsys, *arguments, "--compare", "tiny")
    accuracy = float(re.search(r"accuracy: (\S+)", out)[1])
    assert out.strip().endswith(f"difference {100 * accuracy - 97:+.2f}")
    error = error_of(capsys, *arguments, "--split", "train", "--compare", "tiny")
    assert "`compare` needs the test split" in error


def test_classes_in_another_order_are_refused(tmp_path, capsys):
    write_folder(tmp_path / "photos", count=5)
    model = classifier(num_classes=2)
    for names, command, message in (
        (["cat", "dog"], run, "accuracy"),
        (["dog", "cat"], error_of, "the model's 2 classes, ['dog', 'cat']"),
    ):
        path = tmp_path / names[0]
        keras_vit.save_checkpoint(model, path, "huggingface", class_names=names)
        assert message in command(capsys, "evaluate", path, "--data", f"folder:{tmp_path}/photos")
