"""Adapters of peft for the ViT of transformers: names of arrays, and the configuration."""

import math
import re

from keras_vit.checkpoints.configuration import read_json
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.formats.transformers.vit import name_in_files
from keras_vit.checkpoints.saving import stored_in
from keras_vit.checkpoints.weight_map import Entry, entries
from keras_vit.core.arguments import is_integer, is_number
from keras_vit.core.resizing import WHOLE_IMAGE
from keras_vit.models.base import CENTERED
from keras_vit.models.introspection import options_of
from keras_vit.models.kernels.plain import plain

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FORMAT = FORMATS["huggingface"]
PREFIX = "base_model.model."
# Names in files of transformers, and the names in memory, which peft writes.
MODULES = {
    r"encoder\.layer\.(\d+)": r"layers.\1",
    r"attention\.attention\.query": "attention.q_proj",
    r"attention\.attention\.key": "attention.k_proj",
    r"attention\.attention\.value": "attention.v_proj",
    r"attention\.output\.dense": "attention.o_proj",
    r"intermediate\.dense": "mlp.fc1",
    r"(?<=\d\.)output\.dense": "mlp.fc2",
}
# Settings that say how an adapter was trained, or what its arrays show.
HARMLESS = (
    *("alpha_pattern", "auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules"),
    *("inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha"),
    *("lora_dropout", "megatron_core", "modules_to_save", "peft_type", "peft_version"),
    *("qalora_group_size", "r", "rank_pattern", "revision", "runtime_config", "target_modules"),
    *("task_type", "use_rslora"),
)
# Initial values that leave the weights of the base as they are.
INITIAL_VALUES = (True, False, None, "gaussian", "eva", "orthogonal")


def entries_of(model, variables):
    """Return an `Entry` for each variable of an adapter, by names of transformers' files."""
    base = plain(model)
    facts = None, CENTERED, WHOLE_IMAGE
    row, arrays, _ = stored_in(base, options_of(base), FORMAT, CENTERED, facts=facts)
    if row.name != FORMAT.name:
        raise ValueError(
            "`path` must be a .safetensors file for a model that is not a ViT of transformers. "
            f"Received: a directory for peft, and a model of {row.name!r}"
        )
    kernels = {re.sub("lora_kernel_[ab]$", "kernel", path): path[-1] for path in variables}
    found = []
    for entry in entries(FORMAT.rows, kernels)[0]:
        (target,) = entry.targets
        source = entry.source
        if target in variables:
            found.append(Entry(source, (target,), entry.transform))
            continue
        for letter in "ab":
            path = target.replace("/kernel", f"/lora_kernel_{letter}")
            is_matrix = len(variables[path].shape) == 2
            by_heads = "from_heads" if letter == "a" else "to_heads"
            name = source.replace(".weight", f".lora_{letter.upper()}.weight")
            found.append(Entry(name, (path,), "dense" if is_matrix else by_heads))
    prefix = "vit." if any(name.startswith("vit.") for name in arrays) else ""
    return [
        e if e.source in arrays else Entry(prefix + e.source, e.targets, e.transform) for e in found
    ]


def canonical_name(name):
    """Return the name of an array of peft as `entries_of` has it."""
    prefix = "vit." if name.startswith(f"{PREFIX}vit.") else ""
    return prefix + name_in_files(name.removeprefix(PREFIX + prefix))


def name_in_file(name):
    """Return the name that peft gives to an array of `entries_of`."""
    for pattern, module in MODULES.items():
        name = re.sub(pattern, module, name)
    return PREFIX + name


def config_of(arrays, rank, scale):
    """Return the contents of `adapter_config.json` for arrays of `entries_of`."""
    modules = [name_in_file(name).rpartition(".lora_")[0] for name in arrays if ".lora_" in name]
    saved = {name.rpartition(".")[0] for name in arrays if ".lora_" not in name}
    alpha = scale * rank
    return {
        "peft_type": "LORA",
        "auto_mapping": {
            "base_model_class": "ViTForImageClassification" if saved else "ViTModel",
            "parent_library": "transformers.models.vit.modeling_vit",
        },
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "target_modules": sorted({re.sub(r".*layers\.\d+\.", "", name) for name in modules}),
        "modules_to_save": sorted(saved) or None,
        "bias": "none",
        "inference_mode": True,
    }


def scale_of(directory):
    """Return alpha divided by the rank, or raise an error for what is not supported."""
    config = read_json(directory / CONFIG)
    refused = [name for name, value in config.items() if value and name not in HARMLESS]
    if config.get("bias") == "none":
        refused.remove("bias")
    if config.get("init_lora_weights") not in INITIAL_VALUES:
        refused.append("init_lora_weights")
    refused += [name for name in ("rank_pattern", "alpha_pattern") if config.get(name)]
    if config.get("peft_type") != "LORA":
        refused.append("peft_type")
    if refused:
        settings = ", ".join(f"{name}={config.get(name)!r}" for name in refused)
        raise ValueError(
            f"`path` must be an adapter of LoRA with settings that are supported. Received: {settings}"
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not (is_integer(rank) and rank > 0 and is_number(alpha)):
        raise ValueError(
            f"{CONFIG} must have `r` and `lora_alpha`. Received: r={rank!r}, {alpha!r}"
        )
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
