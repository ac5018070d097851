"""Models of training runs and other files, and the names of their classes."""

import json
import pathlib
import zipfile

from keras_vit.checkpoints.load import from_checkpoint
from keras_vit.checkpoints.trained.runs import MODELS, check_saved, find_model, read_run
from keras_vit.core.files import check_zip
from keras_vit.core.pixels import scales_inputs
from keras_vit.models.files import load_model
from keras_vit.models.surgery import resize

# Member of a .keras file that this package adds; Keras ignores it.
METADATA_FILE = "keras_vit.json"


def load_trained(source, image_size=None, any_size=False):
    """Load a model from a run (its best model), a `.keras` file or a checkpoint.

    It is resized to `image_size`, if given; the files of some models do not record their size. With
    `any_size` it may be a model of any size.
    """
    path = find_model(source)
    if path.suffix != ".keras":
        return from_checkpoint(source, image_size=image_size)
    model = load_unscaled(path)
    if image_size is None and None in model.input_shape[1:3] and not any_size:
        raise ValueError(
            "`image_size` (`--image-size`) must be given for a model of any size. "
            f"Received: model={str(path)!r}"
        )
    return model if image_size is None else resize(model, image_size)


def load_unscaled(path):
    """Load a `.keras` file of a model that takes images in [-1, 1]."""
    check_saved(path)
    model = load_model(path)
    if scales_inputs(model):
        raise ValueError(
            "`model` must take images in [-1, 1], as all commands give them. Received: "
            f"model={str(path)!r}, which scales pixels itself"
        )
    return model


def class_names_of(model, source):
    """Return the names of a model's classes, a list, or `None` if no file says them.

    Models carry them; only the `.keras` files of earlier versions have them beside the model.

    Args:
        model: the model.
        source: what it was loaded from: a path, an address or a name.
    """
    path, carried = find_model(source), getattr(model, "class_names", None)
    if path.suffix == ".keras":
        return recorded_class_names(path, model.output_shape[-1])
    return None if carried is None else list(carried)


def run_of(model_path):
    """Read the `run.json` of the run that saved a model; `{}` for any other model."""
    path = pathlib.Path(model_path)
    run = read_run(path) if path.name in MODELS else {}
    if "id" in run and saved_by_run(path) != run["id"]:
        raise ValueError(
            f"{path.name} in the directory of a run must be the model that the run saved: its "
            "classes are those of `run.json`; move another model elsewhere. "
            f"Received: {str(path)!r}, which the run {run['id']} did not save"
        )
    return run


def recorded_class_names(model_path, num_classes):
    """Return the class names of a `.keras` file, from the file or from its run, or `None`."""
    run, metadata = run_of(model_path), _read_metadata(model_path)
    names = metadata.get("class_names") or run.get("class_names") or _carried_names(model_path)
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not is_list:
        raise ValueError(
            "The class names of a model must be a list of strings. "
            f"Received: {str(model_path)!r} with {names!r:.80}"
        )
    if names is not None and len(names) != num_classes:
        raise ValueError(
            "A model must have as many outputs as its run has class names. Received: "
            f"{str(model_path)!r} with {num_classes} outputs and the names {names}"
        )
    return names


def saved_by_run(model_path):
    """Return the id of the run that has saved a model file, or `None`."""
    path = pathlib.Path(model_path)
    return _read_metadata(path).get("run") if path.suffix == ".keras" else None


def _carried_names(path):
    """Return the class names that the model itself carries, or `None`."""
    config = _read_member(path, "config.json").get("config")
    return config.get("class_names") if isinstance(config, dict) else None


def _read_metadata(path):
    return _read_member(path, METADATA_FILE)


def _read_member(path, name):
    """Return the JSON object in a member of a `.keras` file; empty if there is none."""
    check_saved(path)
    if not pathlib.Path(path).exists():
        raise ValueError(f"`model` must be an existing file. Received: model={str(path)!r}")
    try:
        check_zip(path)
        with zipfile.ZipFile(path) as file:
            contents = json.loads(file.read(name)) if name in file.namelist() else {}
    except PermissionError as error:
        raise ValueError(
            f"`model` must be a file that can be read. Received: model={str(path)!r} ({error})"
        ) from error
    except (OSError, ValueError, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(
            "`model` must be a complete Keras model. "
            f"Received: model={str(path)!r}, which is no .keras file or not all of one ({error})"
        ) from error
    return contents if isinstance(contents, dict) else {}
