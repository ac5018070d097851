"""Save and load LoRA adapters (matrices and head), in files of this package or of peft."""

import json
import math
import os
import pathlib
import re

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.archives import SafetensorsArchive
from keras_vit.checkpoints.configuration import read_json
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.formats.transformers.vit import IN_MEMORY
from keras_vit.checkpoints.reader import mismatches
from keras_vit.checkpoints.save import as_files, at_stored_size, write_files
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import Entry, Naming, entries
from keras_vit.core.image_spec import WHOLE_IMAGE
from keras_vit.layers.layer import LORA_KERNELS
from keras_vit.models.image_model import options_of
from keras_vit.models.keras_files import check_finite
from keras_vit.models.structure import HEAD_LAYERS
from keras_vit.models.surgery import base_kernel, lora_layers

SUFFIX = ".safetensors"
# Key of a JSON record of alpha divided by the rank, fingerprints of the base model, class names and
# thresholds. The record is in the metadata of a `.safetensors` file. In a directory of peft it is a
# separate file, which peft ignores.
RECORD = "keras_vit_adapter"
RECORD_FILE = f"{RECORD}.json"
SCALE, BASE_FINGERPRINTS = "lora_scale", "lora_base"
HEAD_METADATA = ("class_names", "thresholds", "predicts_values")
# Largest root mean square difference of the fingerprints of the same base model. The difference is
# 1.4 for unrelated random kernels, and 0.06 for int4 quantization of a base model (ViT-Ti/16).
MAX_BASE_DIFFERENCE = 0.12

# Names of peft's files, and the layout of the ViT in transformers.
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FORMAT = FORMATS["huggingface"]
# Settings of peft that may have any value: they are read, or the arrays show their effect.
SUPPORTED = (
    *("auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "inference_mode"),
    *("layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core"),
    *("modules_to_save", "peft_version", "qalora_group_size", "r", "revision", "runtime_config"),
    *("target_modules", "task_type", "use_rslora"),
)
# Supported values of other settings. Some `init_lora_weights` would change the base model.
SUPPORTED_VALUES = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, "gaussian", "eva", "orthogonal"),
}


def save_adapter(model: keras.Model, path: str | os.PathLike) -> None:
    """Write the matrices of LoRA and the head of a model to a file, without the base model.

    The file also records the class names and thresholds of the model.

    Args:
        model: a model of `keras_vit.enable_lora`.
        path: path of a `.safetensors` file, whose arrays are named after the model's variables. Or
            path of a directory: `adapter_config.json` and `adapter_model.safetensors` are written
            for peft and the ViT of transformers 5, and `keras_vit_adapter.json` for `load_adapter`.
            Existing files are replaced when the new files are complete.

    Raises:
        ValueError: if the model has no LoRA, a weight is not finite, `path` cannot be written, or
            `path` is a directory and transformers' ViT cannot represent the model.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> model = keras_vit.enable_lora(model, rank=4)
    >>> keras_vit.save_adapter(model, tmp_path / "pets.safetensors")
    >>> keras_vit.load_adapter(model, tmp_path / "pets.safetensors")
    """
    path, (variables, rank, scale) = pathlib.Path(path).expanduser(), _adapter(model)
    check_finite(model)
    values = {name: ops.convert_to_numpy(variable) for name, variable in variables.items()}
    record = {
        SCALE: scale,
        BASE_FINGERPRINTS: _base_fingerprints(model).tolist(),
        **{name: getattr(model, name, None) for name in HEAD_METADATA},
    }
    if path.suffix == SUFFIX:
        write_files(path, values, {}, None, **{RECORD: json.dumps(record)})
        return
    arrays = {
        entry.source: TRANSFORMS[entry.transform].write(
            [values[name] for name in entry.targets], None
        )
        for entry in _peft_entries(model, variables)
    }
    files = {CONFIG: _peft_config(arrays, rank, scale), RECORD_FILE: record}
    write_files(path / WEIGHTS, arrays, files, None)


def load_adapter(model: keras.Model, path: str | os.PathLike) -> None:
    """Assign the matrices of LoRA and the head from a file of `save_adapter` or of peft.

    The class names and thresholds of the model are read from the file, or become `None` if peft
    wrote the file. If the file has no head (for example, of a model without a classifier), the
    model keeps its head, class names and thresholds.

    Args:
        model: a model of `keras_vit.enable_lora`, with the layers, rank, alpha and base model of
            the file.
        path: path of a `.safetensors` file, or of a directory of peft for transformers' ViT.

    Raises:
        ValueError: if the arrays do not fit the model exactly, the file was saved with an unrelated
            base model, or it has unsupported settings of peft. The model is then unchanged. Small
            changes of the base model are not detected. If peft wrote the file, the base model is
            not checked.
    """
    path, (variables, _, model_scale) = pathlib.Path(path).expanduser(), _adapter(model)
    is_peft = path.suffix != SUFFIX
    archive = SafetensorsArchive(path / WEIGHTS if is_peft else path)
    try:
        if is_peft:
            record, scale = read_json(path / RECORD_FILE), _peft_scale(read_json(path / CONFIG))
            expected, rename = _peft_entries(model, variables), _bare_name
            expected = [Entry(_bare_name(e.source), e.targets, e.transform) for e in expected]
        else:
            record = json.loads(archive.metadata.get(RECORD, "{}"))
            scale = record.get(SCALE, math.nan)
            expected, rename = [Entry(name, (name,), "identity") for name in variables], str
        naming = Naming.of(archive.shapes, rename)
        head = [entry for entry in expected if "/lora_kernel_" not in entry.targets[0]]
        has_head = any(entry.source in naming.shapes for entry in head)
        if not has_head:
            expected = [entry for entry in expected if entry not in head]
        values = _values(variables, archive, expected, naming, scale, model_scale)
    finally:
        archive.close()
    if record:
        differences = np.subtract(
            record.get(BASE_FINGERPRINTS, math.nan), _base_fingerprints(model)
        )
        # For NaN, the comparison is false and the error is raised.
        if not np.sqrt(np.mean(differences**2)) <= MAX_BASE_DIFFERENCE:
            raise ValueError(
                "`path` must hold an adapter that was trained with the weights of the base model. "
                f"Received: path={str(path)!r}, which records another base"
            )
    for name in HEAD_METADATA if has_head else ():
        setattr(model, name, record.get(name))
    for name, value in values.items():
        variables[name].assign(value)


def _values(variables, archive, expected, naming, scale, model_scale):
    """Return the values of the variables by name, or raise an error that lists all mismatches."""
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    problems = mismatches(naming, expected, shapes, _misfit)
    if not math.isclose(scale, model_scale, rel_tol=1e-6):
        problems.append(f"alpha / rank is {scale:g}, not {model_scale:g}")
    values = {}
    for entry in () if problems else expected:
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


def _base_fingerprints(model):
    """Return one number per kernel with LoRA: its projection onto a cosine, divided by its norm."""
    fingerprints = []
    for layer in lora_layers(model):
        values = ops.convert_to_numpy(ops.cast(base_kernel(layer), "float32")).ravel()
        # With this norm, fingerprints of random kernels have a standard deviation of 1.
        norm = np.linalg.norm(values) / np.sqrt(2) or 1.0
        fingerprints.append(values @ np.cos(np.arange(values.size, dtype="float32")) / norm)
    return np.float32(fingerprints)


def _adapter(model):
    """Return the variables of LoRA and the head by path, the rank, and alpha / rank."""
    layers = lora_layers(model)
    if not layers:
        raise ValueError(f"`model` must have LoRA. Received: {model.name!r} without LoRA")
    ((rank, scale),) = {(layer.lora_rank, layer.lora_alpha / layer.lora_rank) for layer in layers}
    variables = [getattr(layer, name) for layer in layers for name in LORA_KERNELS]
    heads = [layer for layer in model.layers if layer.name in HEAD_LAYERS]
    variables += [variable for layer in heads for variable in layer.weights]
    return {variable.path: variable for variable in variables}, rank, scale


def _peft_name(name):
    """Return the name of an array in peft with transformers 5; `name` may be an older name."""
    name = re.sub(r"encoder\.layer\.(\d+)", r"layers.\1", name)
    for pattern, module in IN_MEMORY[1:]:
        name = name.replace(module, pattern.replace("\\", ""))
    return name


def _bare_name(name):
    """Return a name of `_peft_name` in a model without a classifier, which lacks `vit.`."""
    return _peft_name(name).replace("model.vit.", "model.", 1)


def _peft_entries(model, variables):
    """Return an `Entry` for each variable of an adapter, with the names of `_peft_name`."""
    base = at_stored_size(model)
    row, arrays, _ = as_files(base, options_of(base).resolved(), FORMAT, WHOLE_IMAGE)
    if row.name != FORMAT.name:
        raise ValueError(
            "`path` must be a .safetensors file for a model that is not transformers' ViT. "
            f"Received: a directory, and a model of the layout {row.name!r}"
        )
    # If there is a classifier, the names of all arrays outside it begin with `vit.`.
    prefix = "base_model.model." + "vit." * any(name.startswith("vit.") for name in arrays)
    peft_entries = []
    for path in variables:
        kernel = re.sub("lora_kernel_[ab]$", "kernel", path)
        ((entry,), _), letter = entries(FORMAT.rows, [kernel]), path[-1]
        source, transform = entry.source, entry.transform
        if kernel != path:
            source = source.replace("weight", f"lora_{letter.upper()}.weight")
            transform = "dense"
        source = f"base_model.model.{source}" if source in arrays else prefix + source
        peft_entries.append(Entry(_peft_name(source), (path,), transform))
    return peft_entries


def _peft_config(arrays, rank, scale):
    """Return the contents of `adapter_config.json` for the arrays of an adapter."""
    modules = {name.partition(".lora_")[0] for name in arrays if ".lora_" in name}
    saved = {name.split(".")[2] for name in arrays if ".lora_" not in name}
    alpha = scale * rank
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": round(alpha) if math.isclose(alpha, round(alpha)) else alpha,
        "target_modules": sorted({re.sub(r".*layers\.\d+\.", "", name) for name in modules}),
        "modules_to_save": sorted(saved) or None,
        "inference_mode": True,
    }


def _peft_scale(config):
    """Return alpha divided by the rank; raise an error for settings that are not supported."""
    unsupported = [
        f"{name}={value!r}"
        for name, value in config.items()
        if value and name not in SUPPORTED and value not in SUPPORTED_VALUES.get(name, ())
    ]
    if unsupported:
        raise ValueError(
            "`path` must be an adapter of LoRA with supported settings. "
            f"Received: {', '.join(unsupported)}"
        )
    rank = config["r"]
    return config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
