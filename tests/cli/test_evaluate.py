"""`keras-vit evaluate`: what it prints and writes of the digits."""

import contextlib
import csv
import dataclasses
import json
import re
import types

import keras
import numpy as np
import pytest
import sklearn.metrics

import keras_vit
from keras_vit.cli.evaluate import Evaluate, check_same_classes
from keras_vit.data import load
from keras_vit.experiments import reported
from keras_vit.training.recipes import RECIPES
from tests.cli.test_cli import error_of, run
from tests.evaluation.test_evaluation import classifier
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.models import classifier as small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "digits.keras"
    keras.utils.set_random_seed(0)
    classifier(10).save(path)
    return path


def test_classes_and_mistakes(model, tmp_path, capsys):
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
    assert [row[0] for row in rows] == header[1:]
    np.testing.assert_array_equal(np.array(rows)[:, 1:].astype(int), matrix)
    assert "reported" not in out
    assert f"accuracy: {np.trace(matrix) / 359:.4f}\n" in out
    assert re.search(r"calibration_error: 0\.\d{4}\n", out)
    lines = out[out.index("class  ") :].splitlines()[1:11]
    for index, line in enumerate(lines):
        name, images, accuracy, *mistake = line.split()
        row = matrix[index]
        assert (name, int(images)) == (str(index), row.sum())
        assert accuracy == f"{row[index] / row.sum():.2%}"
        mistakes = np.where(np.arange(10) == index, 0, row)
        assert mistake == [str(mistakes.argmax()), f"({mistakes.max()})"]
    assert keras.utils.img_to_array(keras.utils.load_img(figure)).std() > 10


def test_comparison_by_name(model, capsys, monkeypatch):
    row = reported.Reported("tiny", "ViT_Ti16", "cifar10", 97.0, 0.1, "nobody")
    monkeypatch.setattr(reported, "OF_CHECKPOINTS", (row,))
    monkeypatch.setattr(reported, "builder_of", lambda model: "ViT_Ti16")
    arguments = ["evaluate", model, "--data", "digits"]
    out = run(capsys, *arguments, "--compare", "tiny")
    accuracy = float(re.search(r"accuracy: (\S+)", out)[1])
    line = out.strip().splitlines()[-1]
    assert line == (
        f"accuracy {100 * accuracy:.2f} %, reported 97.00 +- 0.10 % (tiny, nobody), "
        f"difference {100 * accuracy - 97:+.2f}"
    )
    for more, message in (
        (["--split", "train", "--compare", "tiny"], "`--compare` is for the test split"),
        (["--compare", "ViT_L16/jft300m/cifar10"], "the model's architecture, ViT_Ti16"),
        (["--compare", "small"], "`--compare` must name what has a reported accuracy"),
    ):
        assert message in error_of(capsys, *arguments, *more)


def test_comparison_that_model_and_dataset_tell(monkeypatch):
    monkeypatch.setattr(reported, "builder_of", lambda model: "ViT_L16")
    recipe = json.loads(json.dumps(dataclasses.asdict(RECIPES["finetune_cifar"])))
    facts = {"model": "ViT_L16/imagenet21k", "data": "cifar100", "split": "train"}
    model = types.SimpleNamespace(input_shape=(None, 384, 384, 3))

    def row(path, **options):
        command = Evaluate(f"runs/cifar/{path}", **options)
        return command._find_reported(model, {**facts, "recipe": recipe}, None)

    assert row("best.keras").name == row("last.keras", data="cifar100").name
    assert row("best.keras").name == "ViT_L16/imagenet21k/cifar100"
    assert row("other.keras") is None
    for options in ({"split": "validation"}, {"data": "cifar10"}, {"central_crop_from": 448}):
        assert row("best.keras", **options) is None


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--confusion", "missing/confusion.csv"),
        ("--confusion", "confusion.txt"),
        ("--confusion-figure", "confusion.csv"),
    ],
)
def test_files_are_checked_at_once(flag, value, capsys):
    message = error_of(capsys, "evaluate", "missing.keras", flag, value)
    assert f"`{flag}` must be a .{'png' if 'figure' in flag else 'csv'} file" in message


WNIDS = ["n01440764", "n01443537"]


@pytest.mark.parametrize(
    ("model_names", "data_names", "must_be_equal", "message"),
    [
        (["cat", "dog"], ["cat", "dog"], True, None),
        (["cat", "dog"], ["Cat", "Dog"], True, "must have the model's classes"),
        (["dog", "cat"], ["cat", "dog"], False, "must have the model's classes"),
        (["cat", "dog"], ["ant", "cat"], False, "must have the model's classes"),
        (["cat", "dog"], ["cats", "dogs"], False, "different names .*'cat' is 'cats'"),
        (["tench", "goldfish"], WNIDS, False, None),
        (["cat", "dog"], ["ant", "cat", "dog"], True, "must .* 3 classes; `--classes cat dog` tak"),
        (["cat", "dog"], ["ant", "bee", "cat"], False, "must have the model's 2 .* 3 classes$"),
    ],
)
def test_classes_of_model_and_data(model_names, data_names, must_be_equal, message, caplog):
    is_error = message is not None and message.startswith("must")
    expected = pytest.raises(ValueError, match=message) if is_error else contextlib.nullcontext()
    with expected:
        check_same_classes(model_names, data_names, must_be_equal)
    if message is None or is_error:
        assert not caplog.messages
    else:
        assert re.search(message, caplog.text)


def test_classes_of_a_checkpoint_in_another_order(tmp_path, capsys):
    write_folder(tmp_path / "photos", count=5)
    model = small_model(num_classes=2)
    for names, is_right in ((["cat", "dog"], True), (["dog", "cat"], False)):
        path = tmp_path / names[0]
        keras_vit.save_checkpoint(model, path, "huggingface", class_names=names)
        arguments = ["evaluate", path, "--data", f"folder:{tmp_path / 'photos'}"]
        if is_right:
            assert "accuracy" in run(capsys, *arguments)
        else:
            assert "the model's classes ['dog', 'cat']" in error_of(capsys, *arguments)


def test_a_part_of_other_data_is_told(tmp_path, capsys):
    write_folder(tmp_path / "photos", count=10)
    path = tmp_path / "model.keras"
    small_model(num_classes=2).save(path)
    arguments = ["evaluate", path, "--data", f"folder:{tmp_path / 'photos'}"]
    told = "photos: 4 of 20 images, the split test; `--split train+validation+test` evaluates all"
    assert told in run(capsys, *arguments)
    assert "evaluates all" not in run(capsys, *arguments, "--split", "train+validation+test")
