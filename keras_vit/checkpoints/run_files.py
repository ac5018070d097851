"""The directory of a training run, as far as models are read from it."""

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
    """Return the model file of a path: itself, or the best model of a run's directory."""
    path = pathlib.Path(path).expanduser()
    return path / BEST_MODEL if path.is_dir() and (path / RUN_FILE).is_file() else path


def read_run(path):
    """Read `run.json` in the directory of a file, such as a model; `{}` if there is none."""
    return read_json(pathlib.Path(path).with_name(RUN_FILE))


def run_of(model_path):
    """Read the `run.json` of the run that saved a model; `{}` for any other model."""
    return read_run(model_path) if pathlib.Path(model_path).name in MODELS else {}


def run_metadata(model_path, image_size):
    """Return what is known of a model that a run saved: its data, origin and accuracy.

    Args:
        model_path: path of the model file; `{}` is returned for a model of no run.
        image_size: `(height, width)` of the model as it is used: at another size than in training
            the accuracy is another.
    """
    run = run_of(model_path)
    if not run:
        return {}
    metadata, recipe = {"data": run.get("data"), "trained_from": run.get("model")}, run["recipe"]
    # If the weights are averaged, the run evaluates the averages.
    last = LAST_MODEL if recipe.get("ema_momentum") is None else AVERAGED_MODEL
    metrics = pathlib.Path(model_path).with_name(METRICS_FILE)
    is_measured = pathlib.Path(model_path).name in (BEST_MODEL, last) and "class_names" in run
    if is_measured and tuple(image_size) == (recipe["image_size"],) * 2 and metrics.is_file():
        epochs = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
        # Only models of a finite loss are saved.
        saved = [one for one in epochs if math.isfinite(one.get("val_loss") or math.nan)]
        found = [one["val_accuracy"] for one in saved if "val_accuracy" in one]
        if found:
            is_best = pathlib.Path(model_path).name == BEST_MODEL
            metadata["validation_accuracy"] = max(found) if is_best else found[-1]
    return metadata
