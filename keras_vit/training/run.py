"""The directory of a training run: settings, curves and models."""

import dataclasses
import json
import math
import pathlib

import keras

from keras_vit.checkpoints import from_checkpoint
from keras_vit.models import resize
from keras_vit.models.files import load_model

RUN_FILE = "run.json"
SKIPPED_FILE = "skipped.txt"
BEST_MODEL = "best.keras"
LAST_MODEL = "last.keras"


def create_run(workdir, recipe, facts):
    """Makes the directory of a new run and writes what it is into `run.json`.

    Args:
        workdir: path of the directory; must not hold anything yet.
        recipe: the resolved `Recipe`.
        facts: dictionary of what else to write down.

    Returns:
        The directory's `pathlib.Path`.

    Raises:
        ValueError: if the directory already holds something, or cannot be written.
    """
    workdir = pathlib.Path(workdir).expanduser()
    try:
        if workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
            raise ValueError(
                "`workdir` must be a new or empty directory, so that no run is overwritten. "
                f"Received: workdir={str(workdir)!r}, which already holds something"
            )
        workdir.mkdir(parents=True, exist_ok=True)
        run = {"recipe": dataclasses.asdict(recipe), **facts, "keras": keras.__version__}
        (workdir / RUN_FILE).write_text(json.dumps(run, indent=2) + "\n")
    except OSError as error:
        raise ValueError(
            f"`workdir` must be a directory that can be written. Received: workdir="
            f"{str(workdir)!r} ({error})"
        ) from error
    return workdir


def read_run(model_path):
    """What `run.json` beside a model says, or an empty dictionary where there is none."""
    path = pathlib.Path(model_path).with_name(RUN_FILE)
    return json.loads(path.read_text()) if path.is_file() else {}


def find_model(path):
    """The model file that a path means: itself, or the best model of a run's directory."""
    path = pathlib.Path(path).expanduser()
    return path / BEST_MODEL if path.is_dir() and (path / RUN_FILE).is_file() else path


def load_trained(source, image_size=None):
    """The model that a source means.

    Args:
        source: a run's directory (its best model), a `.keras` file, or whatever
            `keras_vit.from_checkpoint` takes.
        image_size: int or `(height, width)` to resize it to, or what the file does not tell; `None`
            for its own.

    Returns:
        A `keras.Model`, not compiled.

    Raises:
        ValueError: if there is none.
    """
    path = find_model(source)
    if path.suffix != ".keras":
        return from_checkpoint(source, image_size=image_size)
    model = load_model(path)
    return model if image_size is None else resize(model, image_size)


def save_model(model, path):
    """Saves a `.keras` file beside its place and renames it, so that none is ever half written."""
    path = pathlib.Path(path)
    partial = path.with_name(f".{path.stem}.partial.keras")
    try:
        model.save(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class SaveModels(keras.callbacks.Callback):
    """Keeps the last model of a run and the best, by validation accuracy and then by loss.

    Args:
        workdir: the run's directory.
    """

    def __init__(self, workdir):
        super().__init__()
        self.workdir = pathlib.Path(workdir)
        self.best = (-1.0, 0.0)

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["val_loss"]):
            return
        save_model(self.model, self.workdir / LAST_MODEL)
        score = (logs["val_accuracy"], -logs["val_loss"])
        if score > self.best:
            self.best = score
            save_model(self.model, self.workdir / BEST_MODEL)
