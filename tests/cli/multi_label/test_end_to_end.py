"""Images of several labels from end to end: train, evaluate, export and predict."""

import dataclasses
import json
import re

import keras
import numpy as np
import pytest
import scipy.special
import sklearn.metrics
import tensorflow as tf

import keras_vit
from keras_vit.cli import main
from keras_vit.data import load
from keras_vit.models.keras_files import load_model
from tests.fixtures.commands import error_of, run
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import encode

pytestmark = pytest.mark.slow

NAMES = ("blue", "green", "red")
SMALL = (
    "--image-size 16 --batch-size 8 --steps 20 --warmup-steps 2 --learning-rate 0.1 --flip never"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pictures of any number of colored squares on noise, and a CSV file of their colors."""
    root, rng = tmp_path_factory.mktemp("squares"), np.random.default_rng(0)
    lines = ["image,labels"]
    for index in range(60):
        picture, there = rng.integers(0, 60, (16, 16, 3)).astype("uint8"), rng.random(3) < 0.5
        for channel in np.flatnonzero(there):
            row, column = rng.integers(0, 12, 2)
            picture[row : row + 5, column : column + 5, channel] += 180
        (root / f"{index}.png").write_bytes(encode(picture))
        lines.append(f"{index}.png,{' '.join(np.array(['red', 'green', 'blue'])[there])}")
    (root / "labels.csv").write_text("\n".join(lines))
    return f"csv:{root / 'labels.csv'}"


def train(start, data, workdir, *more):
    arguments = ["train", "finetune", "--model", start, "--data", data, "--workdir", workdir]
    return [*map(str, arguments), *SMALL.split(), "--min-crop-area", "None", *map(str, more)]


@pytest.fixture(scope="module")
def workdir(data, start, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "squares"
    main(train(start, data, path, "--loss", "sigmoid", "--ema-momentum", "0.5"))
    return path


def logits_of(model, data, split):
    batches = list(load(data, split, 16, 8).as_numpy_iterator())
    logits = np.concatenate([to_numpy(model(images)) for images, _ in batches])
    return logits, np.concatenate([labels for _, labels in batches])


def test_the_best_model_has_the_best_precision_and_its_thresholds(workdir, data):
    epochs = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    measured = [epoch["val_mean_average_precision"] for epoch in epochs]
    model = load_model(workdir / "best.keras")
    logits, labels = logits_of(model, data, "validation")
    expected = sklearn.metrics.average_precision_score(labels, logits)
    assert max(measured) == pytest.approx(expected, abs=1e-6)
    assert len(model.thresholds) == 3 and len(set(model.thresholds)) > 1
    probabilities = scipy.special.expit(logits)
    for truth, score, threshold in zip(labels.T, probabilities.T, model.thresholds, strict=True):
        best = max(sklearn.metrics.f1_score(truth, score >= level) for level in score)
        assert sklearn.metrics.f1_score(truth, score > threshold) == pytest.approx(best)


def test_evaluation_has_precision_and_f1_of_each_class(workdir, data, capsys):
    out = run(capsys, "evaluate", workdir, "--per-class")
    model = load_model(workdir / "best.keras")
    logits, labels = logits_of(model, data, "test")
    precision = sklearn.metrics.average_precision_score(labels, logits, average=None)
    predicted = scipy.special.expit(logits) > np.array(model.thresholds)
    f1 = sklearn.metrics.f1_score(labels, predicted, average=None)
    assert f"images: {len(labels)}\n" in out
    assert f"mean_average_precision: {precision.mean():.4f}\n" in out
    assert f"f1: {f1.mean():.4f}\n" in out
    for number, name in enumerate(NAMES):
        row = [precision[number], f1[number], model.thresholds[number]]
        cells = [rf"{labels[:, number].sum():.0f}", *(f"{value:.4f}" for value in row)]
        assert re.search(rf"^{name} +{' +'.join(cells)}$", out, re.M)


def test_export_and_predictions_agree(workdir, data, tmp_path, capsys):
    root = data.removeprefix("csv:").removesuffix("labels.csv")
    files = [f"{root}{index}.png" for index in range(8)]
    run(capsys, "export", workdir, tmp_path / "served", "--verify", *files)
    model = load_model(workdir / "best.keras")
    facts = json.loads((tmp_path / "served" / "1" / "model.json").read_text())
    assert facts["thresholds"] == pytest.approx(list(model.thresholds))
    serve = tf.saved_model.load(tmp_path / "served" / "1").signatures["serving_default"]
    answer = serve(image_bytes=tf.constant([tf.io.read_file(file).numpy() for file in files]))
    answer = {name: value.numpy() for name, value in answer.items()}
    np.testing.assert_allclose(
        answer["probabilities"], scipy.special.expit(answer["logits"]), rtol=1e-5
    )
    predicted = answer["probabilities"] > np.array(model.thresholds)
    np.testing.assert_array_equal(answer["predicted"], predicted)
    np.testing.assert_array_equal(
        answer["predicted_labels"].astype(str), np.where(predicted, NAMES, "")
    )
    lines = run(capsys, "predict", workdir, *files).splitlines()
    assert run(capsys, "predict", tmp_path / "served", *files).splitlines() == lines
    for line, row in zip(lines, predicted, strict=True):
        assert {name for name in NAMES if f"  {name} " in line} == {*np.array(NAMES)[row]}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --loss softmax", "loss"),
        ("evaluate RUN --confusion a.csv", "need one class per image"),
        ("evaluate RUN --compare ViT_L16/jft300m/cifar10", "need one class per image"),
        ("evaluate RUN --data PHOTOS", "must have the model's 3 classes"),
    ],
)
def test_what_is_for_one_label_is_refused(
    command, message, workdir, data, photos, start, tmp_path, capsys
):
    known = {"RUN": [workdir], "PHOTOS": [f"folder:{photos}"]}
    known["train"] = train(start, data, tmp_path / "run")
    words = [given for word in command.split() for given in known.get(word, [word])]
    assert message in error_of(capsys, *words)
    assert not (tmp_path / "run").exists()


def test_a_run_without_validation_images_has_thresholds_of_one_half(data, start, tmp_path):
    recipe = keras_vit.training.RECIPES["digits_finetune"]
    recipe = dataclasses.replace(
        recipe, image_size=16, batch_size=8, steps=2, warmup_steps=1, loss="sigmoid"
    )
    run = keras_vit.training.train(recipe, str(start), data, tmp_path / "r", validation=None)
    assert run.model.thresholds == (0.5,) * 3
    model = keras.models.load_model(tmp_path / "r" / "best.keras")
    assert model.thresholds == (0.5,) * 3
