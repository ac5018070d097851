"""The files of a training run's directory: find its models, and read what `run.json` records."""

import json
import math
import pathlib

from keras_vit.checkpoints.configuration import read_json

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
BEST_MODEL = "best.keras"
LAST_MODEL = "last.keras"
AVERAGED_MODEL = "averaged.keras"
PREDICTOR_MODEL = "predictor.keras"
MODELS = (BEST_MODEL, LAST_MODEL, AVERAGED_MODEL, PREDICTOR_MODEL)


def find_model(path):
    """Return the path of the best model for the directory of a run, and otherwise `path`."""
    path = pathlib.Path(path).expanduser()
    return path / BEST_MODEL if path.is_dir() and (path / RUN_FILE).is_file() else path


def read_run(path):
    """Read the `run.json` next to a file, such as a model; return `{}` if there is none."""
    return read_json(pathlib.Path(path).with_name(RUN_FILE))


def run_of(model_path):
    """Read the `run.json` of the run that saved a model; return `{}` for any other model."""
    return read_run(model_path) if pathlib.Path(model_path).name in MODELS else {}


def run_metadata(model_path, image_size):
    """Return the data, the starting model and the accuracy of a model that a run saved.

    Args:
        model_path: path of the model file. If no run saved it, `{}` is returned.
        image_size: `(height, width)` of the images that the model will be used with. The accuracy
            is returned only if the run used images of this size.
    """
    run = run_of(model_path)
    if not run:
        return {}
    metadata, recipe = {"data": run.get("data"), "trained_from": run.get("model")}, run["recipe"]
    # With an EMA of the weights, the run evaluates the averaged model.
    last = LAST_MODEL if recipe.get("ema_momentum") is None else AVERAGED_MODEL
    metrics = pathlib.Path(model_path).with_name(METRICS_FILE)
    is_measured = pathlib.Path(model_path).name in (BEST_MODEL, last) and "class_names" in run
    if is_measured and tuple(image_size) == (recipe["image_size"],) * 2 and metrics.is_file():
        epochs = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
        # A model is saved only if its validation loss is finite.
        saved = [row for row in epochs if math.isfinite(row.get("val_loss") or math.nan)]
        accuracies = [row["val_accuracy"] for row in saved if "val_accuracy" in row]
        if accuracies:
            is_best = pathlib.Path(model_path).name == BEST_MODEL
            metadata["validation_accuracy"] = max(accuracies) if is_best else accuracies[-1]
    return metadata
