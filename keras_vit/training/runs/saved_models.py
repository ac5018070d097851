"""Save and load the models of runs, with their run id and class names."""

import json
import logging
import pathlib
import zipfile

import keras

from keras_vit.checkpoints import from_checkpoint
from keras_vit.core.files import replacing
from keras_vit.core.pixels import scales_inputs
from keras_vit.data.sources.kinds import BY_POSITION, absolute_name, find_kind
from keras_vit.models import resize
from keras_vit.models.base import ImageModel, origin_of, pass_on
from keras_vit.models.files import load_model
from keras_vit.training.runs.run import MODELS, RUN_FILE, find_model, read_run
from keras_vit.training.runs.trained_on import images_trained_on, warn_of_trained_images

# Member of a .keras file that this package adds; Keras ignores it.
_METADATA_FILE = "keras_vit.json"


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
    model = load_model(path)
    if scales_inputs(model):
        raise ValueError(
            "`model` must take images in [-1, 1], as all commands give them. Received: "
            f"model={str(path)!r}, which scales pixels itself"
        )
    return model


def save_model(model, path, metadata=None):
    """Save a `.keras` file without the optimizer, atomically.

    `metadata` is stored in the file, where Keras ignores it: `run`, the id of the run that saves
    it, and `class_names`, a list or `None`.
    """
    with replacing(path) as partial:
        try:
            _without_optimizer(model, metadata or {}).save(partial)
            if metadata is not None:
                with zipfile.ZipFile(partial, "a") as file:
                    file.writestr(_METADATA_FILE, json.dumps(metadata))
        except RuntimeError as error:
            # What h5py raises where a disk is full.
            raise OSError(str(error)) from error


def _without_optimizer(model, metadata):
    kind = ImageModel if isinstance(model, ImageModel) else keras.Model
    new = kind(model.input, model.output, name=model.name, trainable=model.trainable)
    pass_on(model, new)
    names = metadata.get("class_names")
    # The model that predicts masked patches has other outputs than classes.
    if names and isinstance(new, ImageModel) and new.output_shape[-1] == len(names):
        new.class_names = names
    return new


def run_metadata(model_path):
    """Return the metadata that a run saves in its model files: its id and class names."""
    run = read_run(model_path)
    return {"run": run.get("id"), "class_names": run.get("class_names")}


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


def images_trained_before(model):
    """Read which images a model was trained on by the run that it comes from.

    Return `Fingerprints`, or `None` if there is no record. This is logged, except for new and
    published models.
    """
    path = origin_of(model)
    if path is None:
        return None
    log = logging.getLogger("keras_vit")
    if not path.exists():
        log.warning(
            "%s, which the model comes from, is not there: images that it was trained on before "
            "cannot be named",
            path,
        )
        return None
    if path.name == RUN_FILE or (path.suffix == ".keras" and run_of(path)):
        return images_trained_on(path.parent)
    if saved_by_run(path):
        _warn_of_lost_record(path)
    else:
        log.info("%s does not record the images that it was trained on", path)
    return None


def saved_by_run(model_path):
    """Return the id of the run that has saved a model file, or `None`."""
    path = pathlib.Path(model_path)
    return _read_metadata(path).get("run") if path.suffix == ".keras" else None


def warn_of_images(model_path, run, images):
    """Log a warning that names images that a model was trained on, if its run records them.

    `run` is the dictionary of `run_of`.
    """
    if run:
        warn_of_trained_images(pathlib.Path(model_path).parent, images)
    elif saved_by_run(model_path):
        _warn_of_lost_record(model_path)


def _warn_of_lost_record(path):
    logging.getLogger("keras_vit").warning(
        "%s was saved by the run %s, whose record is not next to it: images that it was trained on "
        "cannot be named",
        *(path, saved_by_run(path)),
    )


def data_of(run, name=None):
    """Return the name with which `load` divides a run's data into the splits of that run.

    The name is by default the run's. It gets the prefix `by-position:` for the data of a run of a
    version before 0.2, which recorded no division.
    """
    name = name or run.get("data")
    if not run or "id" in run or name is None or name.startswith(BY_POSITION):
        return name
    kind, _ = find_kind(name)
    takes_it = kind is not None and "by_position" in kind.takes
    return BY_POSITION + name if takes_it and absolute_name(name) == run.get("data") else name


def _carried_names(path):
    """Return the class names that the model itself carries, or `None`."""
    config = _read_member(path, "config.json").get("config")
    return config.get("class_names") if isinstance(config, dict) else None


def _read_metadata(path):
    return _read_member(path, _METADATA_FILE)


def _read_member(path, name):
    """Return the JSON object in a member of a `.keras` file; empty if there is none."""
    if not pathlib.Path(path).exists():
        raise ValueError(f"`model` must be an existing file. Received: model={str(path)!r}")
    try:
        with zipfile.ZipFile(path) as file:
            contents = json.loads(file.read(name)) if name in file.namelist() else {}
    except (OSError, ValueError, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(
            "`model` must be a complete Keras model. "
            f"Received: model={str(path)!r}, which is no .keras file or not all of one"
        ) from error
    return contents if isinstance(contents, dict) else {}
