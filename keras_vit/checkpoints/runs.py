"""The directory of a training run, as far as models are read from it."""

import pathlib

from keras_vit.checkpoints.configuration import read_json

RUN_FILE = "run.json"
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
