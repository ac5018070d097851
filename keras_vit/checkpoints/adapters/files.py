"""Adapters written to files and read from them, our own or those of peft."""

import os
import pathlib
import types

import numpy as np
from keras import ops

from keras_vit.checkpoints.adapters import peft
from keras_vit.checkpoints.archives import SafetensorsArchive
from keras_vit.checkpoints.matching import mismatches
from keras_vit.checkpoints.saving import write_files
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import Entry, Naming
from keras_vit.layers.projection import LORA_KERNELS
from keras_vit.models.files import check_finite
from keras_vit.models.kernels.lora import has_lora, lora_parts
from keras_vit.models.parts import HEAD_LAYERS

SUFFIX = ".safetensors"
# Name of the number in our files by which the product of LoRA is multiplied.
SCALE = "lora_scale"


def save_adapter(model, path):
    """Write the matrices of LoRA and the head of a model to a file, without its base.

    What is at `path` is replaced when the new file is complete.

    Args:
        model: a model of `keras_vit.enable_lora`.
        path: path of a `.safetensors` file with the names of our variables; or of a directory, for
            `adapter_config.json` and `adapter_model.safetensors` of peft, for the
            `ViTForImageClassification` or `ViTModel` of transformers 5.

    Raises:
        ValueError: if the model has no LoRA, a weight is not finite, `path` is of another kind or
            cannot be written, or the model is not a ViT of transformers for peft.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.enable_lora(model, rank=4)
    >>> keras_vit.save_adapter(model, tmp_path / "pets.safetensors")
    >>> keras_vit.load_adapter(model, tmp_path / "pets.safetensors")
    """
    variables, path = _variables(model), _path_of(path)
    check_finite(model)
    rank, scale = _rank_and_scale(model)
    values = {name: ops.convert_to_numpy(variable) for name, variable in variables.items()}
    if path.suffix == SUFFIX:
        write_files(path, {**values, SCALE: np.float32(scale)}, {}, None)
        return
    found = peft.entries_of(model, variables)
    arrays = {
        entry.source: TRANSFORMS[entry.transform].write([values[name] for name in entry.targets])
        for entry in found
    }
    files = {peft.CONFIG: peft.config_of(arrays, rank, scale)}
    arrays = {peft.name_in_file(name): array for name, array in arrays.items()}
    write_files(path / peft.WEIGHTS, arrays, files, None)


def load_adapter(model, path):
    """Assign the matrices of LoRA and the head from a file of `save_adapter` or of peft.

    Args:
        model: a model of `keras_vit.enable_lora` with the layers, rank and alpha of the file.
        path: path of a `.safetensors` file, or of a directory of peft for the ViT of transformers.

    Raises:
        ValueError: if the file does not hold exactly the adapter of the model, or was made with
            options of peft that are not supported. The model does not change then.
    """
    variables, path = _variables(model), _path_of(path)
    is_peft = path.suffix != SUFFIX
    file = path / peft.WEIGHTS if is_peft else path
    if not file.is_file():
        raise ValueError(f"`path` must be an existing adapter. Received: path={str(file)!r}")
    archive = SafetensorsArchive(file)
    try:
        if is_peft:
            found = peft.entries_of(model, variables)
            naming = Naming.of(archive.shapes, peft.canonical_name)
            scale = peft.scale_of(path)
        else:
            found = [Entry(name, (name,), "identity") for name in variables]
            naming = Naming.of({n: s for n, s in archive.shapes.items() if n != SCALE})
            scale = archive.read(SCALE) if SCALE in archive.shapes else np.nan
        values = _values(variables, path, archive, found, naming, scale, _rank_and_scale(model)[1])
    finally:
        archive.close()
    for name, value in values.items():
        variables[name].assign(value)


def _values(variables, path, archive, found, naming, scale, own_scale):
    """Return the values of the variables by name, or raise an error that lists both sides."""
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    reader = types.SimpleNamespace(naming=naming)
    problems = mismatches(reader, found, shapes, fits_positions=False, drop_head=False)
    if not np.isclose(scale, own_scale, rtol=1e-6):
        problems.append(f"alpha / rank is {float(scale):g}, not {own_scale:g}")
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
            f"Received: path={str(path)!r}, with {'; '.join(problems)}"
        )
    return values


def _variables(model):
    """Return the variables of an adapter by path: the matrices of LoRA, and those of the head."""
    if not has_lora(model):
        raise ValueError(
            "`model` must have LoRA, see `keras_vit.enable_lora`. "
            f"Received: the model {getattr(model, 'name', model)!r} without it"
        )
    found = [getattr(part, name) for part in lora_parts(model) for name in LORA_KERNELS]
    heads = [layer for layer in model.layers if layer.name in HEAD_LAYERS]
    found += [variable for layer in heads for variable in layer.weights]
    return {variable.path: variable for variable in found}


def _rank_and_scale(model):
    """Return the rank of the adapters of a model, and alpha divided by it."""
    pairs = {(part.lora_rank, part.lora_alpha / part.lora_rank) for part in lora_parts(model)}
    if len(pairs) > 1:
        raise ValueError(
            f"`model` must have one rank and one alpha. Received: (rank, scale) {sorted(pairs)}"
        )
    return pairs.pop()


def _path_of(path):
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"`path` must be a path. Received: path={path!r}")
    path = pathlib.Path(path).expanduser()
    if path.suffix == SUFFIX if path.is_dir() else path.suffix != SUFFIX and path.is_file():
        raise ValueError(
            f"`path` must be a {SUFFIX} file or a directory. Received: path={str(path)!r}"
        )
    return path
