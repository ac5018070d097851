"""Adapters written to files and read from them, our own or those of peft."""

import json
import os
import pathlib

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.adapters import peft
from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import FILE_SUFFIXES, SafetensorsArchive
from keras_vit.checkpoints.configuration import read_json
from keras_vit.checkpoints.reader import mismatches
from keras_vit.checkpoints.save import write_files
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import Entry, Naming
from keras_vit.core.arguments import is_number
from keras_vit.layers.dense import LORA_KERNELS
from keras_vit.models.files import check_finite
from keras_vit.models.parts import HEAD_LAYERS
from keras_vit.models.surgery import base_kernel, lora_parts

SUFFIX = ".safetensors"
# What is recorded besides the arrays: alpha divided by the rank, the fingerprints of the base, the
# class names and the thresholds. It is JSON in the metadata of our files, and a file of its own in
# a directory of peft, which ignores it.
RECORD = "keras_vit_adapter"
RECORD_FILE = f"{RECORD}.json"
SCALE, BASE_FINGERPRINTS = "lora_scale", "lora_base"
FACTS_OF_HEAD = ("class_names", "thresholds")
# Root mean square of the differences: 1.4 for other random kernels, 0.06 after int4 (ViT-Ti/16).
MAX_BASE_DIFFERENCE = 0.12


def save_adapter(model: keras.Model, path: str | os.PathLike) -> None:
    """Write the matrices of LoRA and the head of a model to a file, without its base.

    The class names and thresholds of the head are recorded, too.

    Args:
        model: a model of `keras_vit.enable_lora`.
        path: path of a `.safetensors` file with the names of our variables; or of a directory, for
            `adapter_config.json` and `adapter_model.safetensors` of peft with the ViT of
            transformers 5, and `keras_vit_adapter.json` for `load_adapter`. The old files are
            replaced when the new ones are complete.

    Raises:
        ValueError: if the model has no LoRA, a weight is not finite, `path` cannot be written, or
            transformers' ViT is another model.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.enable_lora(model, rank=4)
    >>> keras_vit.save_adapter(model, tmp_path / "pets.safetensors")
    >>> keras_vit.load_adapter(model, tmp_path / "pets.safetensors")
    """
    path, (variables, rank, scale) = _as_path(path), _adapter(model)
    check_finite(model)
    values = {name: ops.convert_to_numpy(variable) for name, variable in variables.items()}
    record = {
        SCALE: scale,
        BASE_FINGERPRINTS: _base_fingerprints(model).tolist(),
        **{name: getattr(model, name, None) for name in FACTS_OF_HEAD},
    }
    if path.suffix == SUFFIX:
        write_files(path, values, {}, None, **{RECORD: json.dumps(record)})
        return
    arrays = {
        entry.source: TRANSFORMS[entry.transform].write(
            [values[name] for name in entry.targets], None
        )
        for entry in peft.entries_of(model, variables)
    }
    files = {peft.CONFIG: peft.config_of(arrays, rank, scale), RECORD_FILE: record}
    write_files(path / peft.WEIGHTS, arrays, files, None)


def load_adapter(model: keras.Model, path: str | os.PathLike) -> None:
    """Assign the matrices of LoRA and the head from a file of `save_adapter` or of peft.

    The model gets the class names and thresholds of that head; files of peft do not record them.

    Args:
        model: a model of `keras_vit.enable_lora` with the layers, rank, alpha and base of the file.
        path: path of a `.safetensors` file, or of a directory of peft for transformers' ViT.

    Raises:
        ValueError: if the file is not exactly the adapter of the model, was saved with an
            unrelated base (small changes of the base are not found, and files of peft do not record
            it), or needs options of peft that are not supported. The model does not change then.
    """
    path, (variables, _, own_scale) = _as_path(path), _adapter(model)
    is_peft = path.suffix != SUFFIX
    *_, file = files = [path / name for name in (peft.CONFIG, peft.WEIGHTS)] if is_peft else [path]
    if not all(file.is_file() for file in files):
        raise ValueError(f"`path` must be an existing adapter. Received: path={str(path)!r}")
    archive = SafetensorsArchive(file)
    try:
        if is_peft:
            place = path / RECORD_FILE
            record = read_json(place) if place.is_file() else {}
            found, scale = peft.entries_of(model, variables), peft.scale_of(path)
        else:
            place, record = path, json.loads(archive.metadata.get(RECORD, "{}"))
            found = [Entry(name, (name,), "identity") for name in variables]
            scale = record.get(SCALE, np.nan)
        naming = Naming.of(archive.shapes, peft.name_of if is_peft else lambda name: name)
        values = _values(variables, archive, found, naming, scale, own_scale)
        _check_base(model, record, place)
    finally:
        archive.close()
    for name in FACTS_OF_HEAD:
        if name not in record and getattr(model, name, None) is not None:
            logger.warning("%s does not record `model.%s`, which is None now", path, name)
        setattr(model, name, record.get(name))
    for name, value in values.items():
        variables[name].assign(value)


def _values(variables, archive, found, naming, scale, own_scale):
    """Return the values of the variables by name, or raise an error that lists both sides."""
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    problems = mismatches(naming, found, shapes, _misfit)
    if not np.isclose(scale, own_scale, rtol=1e-6):
        problems.append(f"alpha / rank is {scale:g}, not {own_scale:g}")
    values = {}
    for entry in () if problems else found:
        array = archive.read(naming.sources[entry.source].name)
        if not np.isfinite(array).all():
            problems.append(f"{entry.source!r} has NaN or infinite values")
        read = TRANSFORMS[entry.transform].read(array, [shapes[t] for t in entry.targets])
        values.update(zip(entry.targets, read, strict=True))
    if problems:
        raise ValueError(
            "`path` must hold exactly the adapter of the model: its layers, rank, alpha and head. "
            f"Received: path={str(archive.path)!r}, with {'; '.join(problems)}"
        )
    return values


def _misfit(entry, actual, targets):
    expected = TRANSFORMS[entry.transform].shape(targets, None)
    return None if tuple(actual) == tuple(expected) else tuple(expected)


def _check_base(model, record, place):
    """Raise an error if an adapter was saved with a base that is unrelated to the model's."""
    if not record:
        return
    recorded = record.get(BASE_FINGERPRINTS)
    if not isinstance(recorded, list) or not all(map(is_number, recorded)):
        raise ValueError(
            f"`{BASE_FINGERPRINTS}` of {str(place)!r} must be a list of numbers. "
            f"Received: {recorded!r:.60}"
        )
    differences = np.subtract(recorded, _base_fingerprints(model))
    # NaN is no small difference.
    if not np.sqrt(np.mean(differences**2)) <= MAX_BASE_DIFFERENCE:
        raise ValueError(
            "`path` must hold an adapter of the model's weights: with others the model would "
            f"compute something else. Received: {str(place)!r}, which records another base"
        )


def _base_fingerprints(model):
    """Return one number per adapted kernel: its projection onto a cosine, divided by its norm."""
    found = []
    for part in lora_parts(model):
        values = ops.convert_to_numpy(ops.cast(base_kernel(part), "float32")).ravel()
        # For random kernels, these numbers have a standard deviation of 1.
        norm = np.linalg.norm(values) / np.sqrt(2) or 1.0
        found.append(values @ np.cos(np.arange(values.size, dtype="float32")) / norm)
    return np.float32(found)


def _adapter(model):
    """Return the variables of the adapter and the head by path, the rank, and the scale."""
    found = lora_parts(model, required=True)
    pairs = {(part.lora_rank, part.lora_alpha / part.lora_rank) for part in found}
    if len(pairs) > 1:
        raise ValueError(f"`model` must have one rank and one alpha. Received: {sorted(pairs)}")
    variables = [getattr(part, name) for part in found for name in LORA_KERNELS]
    heads = [layer for layer in model.layers if layer.name in HEAD_LAYERS]
    variables += [variable for layer in heads for variable in layer.weights]
    return {variable.path: variable for variable in variables}, *pairs.pop()


def _as_path(path):
    suffix = pathlib.Path(path).suffix if isinstance(path, (str, os.PathLike)) else None
    if suffix is None or suffix in set(FILE_SUFFIXES) - {SUFFIX}:
        raise ValueError(
            f"`path` must be a directory or end with {SUFFIX}. Received: path={path!r}"
        )
    return pathlib.Path(path).expanduser()
