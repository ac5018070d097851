"""Adapters of peft for the ViT of transformers: names of arrays, and the configuration."""

import math
import re

from keras_vit.checkpoints.configuration import read_json
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.formats.transformers.vit import IN_MEMORY
from keras_vit.checkpoints.save import stored_in
from keras_vit.checkpoints.weight_map import Entry, entries
from keras_vit.core.arguments import is_integer, is_number
from keras_vit.core.resizing import WHOLE_IMAGE
from keras_vit.models.model import CENTERED, options_of
from keras_vit.models.surgery import plain

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FORMAT = FORMATS["huggingface"]
# Settings that do not change the function of an adapter beyond its arrays.
SUPPORTED = (
    *("auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "inference_mode"),
    *("layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core"),
    *("modules_to_save", "peft_version", "qalora_group_size", "r", "revision", "runtime_config"),
    *("target_modules", "task_type", "use_rslora"),
)
# Other settings that are not false, and their values. Some initial values change the base.
VALUES = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, "gaussian", "eva", "orthogonal"),
}


def name_of(name):
    """Return the name that peft gives an array with transformers 5, from that or an older one."""
    name = re.sub(r"encoder\.layer\.(\d+)", r"layers.\1", name)
    for pattern, module in IN_MEMORY[1:]:
        name = name.replace(module, pattern.replace("\\", ""))
    return name


def entries_of(model, variables):
    """Return an `Entry` for each variable of an adapter, by the names of `name_of`."""
    base = plain(model)
    facts = None, CENTERED, WHOLE_IMAGE
    row, arrays, _ = stored_in(base, options_of(base).resolved(), FORMAT, CENTERED, facts=facts)
    if row.name != FORMAT.name:
        raise ValueError(
            "`path` must be a .safetensors file for a model that is not transformers' ViT. "
            f"Received: a directory, and a model of the layout {row.name!r}"
        )
    # The classifier has a name without it.
    prefix = "base_model.model." + "vit." * any(name.startswith("vit.") for name in arrays)
    found = []
    for path, variable in variables.items():
        kernel = re.sub("lora_kernel_[ab]$", "kernel", path)
        ((entry,), _), letter = entries(FORMAT.rows, [kernel]), path[-1]
        source, transform = entry.source, entry.transform
        if kernel != path:
            source = source.replace("weight", f"lora_{letter.upper()}.weight")
            transform = "dense"
        source = f"base_model.model.{source}" if source in arrays else prefix + source
        found.append(Entry(name_of(source), (path,), transform))
    return found


def config_of(arrays, rank, scale):
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


def scale_of(directory):
    """Return alpha divided by the rank, or raise an error for what is not supported."""
    config = read_json(directory / CONFIG)
    refused = {
        name: value
        for name, value in {"peft_type": None, **config}.items()
        if name not in SUPPORTED and value not in VALUES.get(name, ()) and (value or name in VALUES)
    }
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if refused or not (is_integer(rank) and rank > 0 and is_number(alpha)):
        refused = refused or {"r": rank, "lora_alpha": alpha}
        listed = ", ".join(f"{name}={value!r}" for name, value in refused.items())
        raise ValueError(
            f"`path` must be an adapter of LoRA with supported settings. Received: {listed}"
        )
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
