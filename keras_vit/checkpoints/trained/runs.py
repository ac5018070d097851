"""The directory of a training run, as far as a model is read from it."""

import json
import pathlib
import shlex

from keras_vit.core.choices import RENAMED_SETTING

RUN_FILE = "run.json"
BEST_MODEL = "best.keras"
LAST_MODEL = "last.keras"
AVERAGED_MODEL = "averaged.keras"
PREDICTOR_MODEL = "predictor.keras"
MODELS = (BEST_MODEL, LAST_MODEL, AVERAGED_MODEL, PREDICTOR_MODEL)
# Keys of `run.json` that this package reads, with their types.
_KINDS = {"recipe": dict, "class_names": list, "id": str}


def read_run(path):
    """Read `run.json` in the directory of a file, such as a model; `{}` if there is none."""
    path = pathlib.Path(path).with_name(RUN_FILE)
    try:
        run = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"The `run.json` of a run must be JSON. Received: {str(path)!r} ({error})"
        ) from error
    is_right = isinstance(run, dict) and all(
        isinstance(run.get(name, kind()), kind) for name, kind in _KINDS.items()
    )
    if not is_right:
        kinds = ", ".join(f"{name} ({kind.__name__})" for name, kind in _KINDS.items())
        raise ValueError(
            f"The `run.json` of a run must be a dictionary with {kinds}. Received: {str(path)!r}"
        )
    old, new = RENAMED_SETTING
    if old in run.get("recipe", {}):
        run["recipe"][new] = run["recipe"].pop(old)
    return run


def find_model(path):
    """Return the model file of a path: itself, or the best model of a run's directory."""
    path = pathlib.Path(path).expanduser()
    return path / BEST_MODEL if path.is_dir() and (path / RUN_FILE).is_file() else path


def check_saved(path):
    """Raise `ValueError` if a run has not saved the model of this path; the error says why."""
    path = pathlib.Path(path)
    if path.exists() or path.name not in MODELS or not path.with_name(RUN_FILE).is_file():
        return
    last, run = path.with_name(LAST_MODEL), shlex.quote(str(path.parent))
    why = f"which is not there; its run has saved {str(last)!r}"
    if not last.is_file():
        why = (
            "which its run has not saved yet: if it was stopped, `keras-vit train --resume "
            f"--workdir {run}` goes on"
        )
    raise ValueError(f"`model` must be an existing file. Received: model={str(path)!r}, {why}")
