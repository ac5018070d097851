"""Regression from end to end: train, evaluate, export and predict values."""

import csv
import json
import re

import numpy as np
import pyarrow.parquet
import pytest
import sklearn.metrics
import tensorflow as tf

import keras_vit
from keras_vit.cli import main
from keras_vit.data import load
from keras_vit.evaluation import evaluate
from keras_vit.models.keras_files import load_model
from keras_vit.serving import Predictor, load_runner
from tests.fixtures.commands import error_of, run
from tests.fixtures.values import NAMES, write_values

pytestmark = pytest.mark.slow

SMALL = (
    "--image-size 16 --batch-size 8 --steps 40 --warmup-steps 4 --learning-rate 0.1 --flip never"
    " --min-crop-area None --loss regression"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_values(tmp_path_factory.mktemp("pictures"))


def train(start, data, workdir, *more):
    arguments = ["train", "finetune", "--model", start, "--data", data, "--workdir", workdir]
    return [*map(str, arguments), *SMALL.split(), *map(str, more)]


@pytest.fixture(scope="module")
def workdir(data, start, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "values"
    main(train(start, data, path, "--ema-momentum", "0.5"))
    return path


@pytest.fixture(scope="module")
def model(workdir):
    return load_model(workdir / "best.keras")


def predicted_and_targets(model, data, split):
    batches = list(load(data, split, 16, 8).as_numpy_iterator())
    predicted = np.concatenate([np.asarray(model(images)) for images, _ in batches])
    return predicted, np.concatenate([values for _, values in batches])


def test_the_best_model_has_the_smallest_loss(workdir, model, data):
    epochs = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    best = min(epochs, key=lambda epoch: epoch["val_loss"])
    predicted, targets = predicted_and_targets(model, data, "validation")
    assert best["val_r2"] == pytest.approx(sklearn.metrics.r2_score(targets, predicted), abs=1e-4)
    assert best["val_r2"] > 0.5


def test_metrics_are_those_of_scikit_learn(workdir, model, data, capsys):
    predicted, targets = predicted_and_targets(model, data, "test")
    metrics = {
        "r2": sklearn.metrics.r2_score,
        "mean_absolute_error": sklearn.metrics.mean_absolute_error,
        "mean_squared_error": sklearn.metrics.mean_squared_error,
    }
    expected = {"images": len(targets)}
    for metric, function in metrics.items():
        truth, found = targets.astype("float64"), predicted.astype("float64")
        each = function(truth, found, multioutput="raw_values")
        expected[metric] = function(truth, found)
        expected |= {f"{metric} of {name}": x for name, x in zip(NAMES, each, strict=True)}
    assert evaluate(model, load(data, "test", 16, 8)) == pytest.approx(expected, rel=1e-4)
    out = run(capsys, "evaluate", workdir)
    assert set(re.findall("^(.*): ", out, re.M)) == set(expected)


@pytest.mark.parametrize("format", ["saved_model", "onnx", "litert", "openvino"])
def test_exports_return_values(format, model, data, tmp_path):
    path = keras_vit.export(model, tmp_path / "served", format=format)
    facts = json.loads((path / "model.json").read_text())
    assert facts["predicts_values"] and facts["thresholds"] is None
    assert (path / "assets" / "labels.txt").read_text().split() == list(NAMES)
    answer = Predictor(path, ("values",))({"path": find_files(data, 8)})
    np.testing.assert_allclose(answer["values"], load_values(model, data), rtol=1e-5)
    assert load_runner(path).predicts_values


def find_files(data, count):
    root = data.removeprefix("csv:").removesuffix("values.csv")
    return [f"{root}p{index}.png" for index in range(count)]


def load_values(model, data):
    images = [tf.io.decode_png(tf.io.read_file(file)) for file in find_files(data, 8)]
    return np.asarray(model((np.stack(images) - 127.5).astype("float32") / 127.5))


def test_a_saved_model_returns_only_values(model, data, tmp_path):
    path = keras_vit.export(model, tmp_path / "served", signatures=("bytes", "uint8", "float"))
    loaded = tf.saved_model.load(path)
    for name in ("serving_default", "uint8", "float"):
        assert list(loaded.signatures[name].structured_outputs) == ["values"]
    files = [tf.io.read_file(file) for file in find_files(data, 8)]
    answer = loaded.signatures["serving_default"](image_bytes=tf.stack(files))
    np.testing.assert_allclose(answer["values"], load_values(model, data), rtol=1e-5)


def test_predictions_are_printed_and_written(workdir, model, data, tmp_path, capsys):
    files, expected = find_files(data, 8), load_values(model, data)
    lines = run(capsys, "predict", workdir, *files, "--csv", tmp_path / "p.csv").splitlines()
    for file, row, line in zip(files, expected, lines[:-1], strict=True):
        name, *printed = line.split("  ")
        assert name == file
        found = dict(text.split() for text in printed)
        assert list(found) == list(NAMES)
        np.testing.assert_allclose([float(x) for x in found.values()], row, rtol=1e-5)
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == [*NAMES] * 8
    np.testing.assert_allclose([float(r["value"]) for r in rows], expected.ravel(), rtol=1e-5)


def test_parquet_files_have_values(workdir, model, data, tmp_path, capsys):
    options = ("--split", "test", "--output", tmp_path / "out", "--outputs", "values")
    run(capsys, "predict", workdir, data, *options)
    table = pyarrow.parquet.read_table(tmp_path / "out").to_pydict()
    predicted, targets = predicted_and_targets(model, data, "test")
    np.testing.assert_allclose(table["values"], predicted, rtol=1e-5)
    np.testing.assert_array_equal(table["label"], targets)


def test_a_kept_head_starts_where_it_was(workdir, model, data, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    main(train(workdir / "best.keras", data, tmp_path / "run", "--keep-head", "--steps", "8"))
    before = next(text for text in caplog.messages if text.startswith("before the first step"))
    predicted, targets = predicted_and_targets(model, data, "validation")
    r2 = sklearn.metrics.r2_score(targets, predicted)
    assert float(re.search(r"val_r2: (\S+)", before)[1]) == pytest.approx(r2, abs=1e-3)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --loss softmax", "need `--loss regression`"),
        ("train --teacher RUN", "A `teacher` needs the loss 'softmax'"),
        ("train --data PHOTOS", "needs images with values"),
        ("evaluate RUN --per-class", "need one class per image"),
        ("evaluate RUN --compare ViT_L16/jft300m/cifar10", "need one class per image"),
    ],
)
def test_what_is_for_classes_is_refused(
    command, message, workdir, data, photos, start, tmp_path, capsys
):
    known = {"RUN": [workdir], "PHOTOS": [f"folder:{photos}"]}
    known["train"] = train(start, data, tmp_path / "run")
    words = [given for word in command.split() for given in known.get(word, [word])]
    assert message in error_of(capsys, *words)


def test_values_are_not_rounded_to_16_bits(model, tmp_path):
    with pytest.raises(ValueError, match="`quantize` must be None or 'int8' for a model that pred"):
        keras_vit.export(model, tmp_path, format="onnx", quantize="float16")


def test_values_of_other_names_are_not_compared(model, data):
    dataset = keras_vit.data.load(data, "test", model.input_shape[1:3], 8)
    model = keras_vit.resize(model, model.input_shape[1:3])
    model.class_names = tuple(reversed(dataset.class_names))
    with pytest.raises(ValueError, match="must have the model's values"):
        keras_vit.evaluation.evaluate(model, dataset)
