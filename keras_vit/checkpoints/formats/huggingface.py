"""The ViT of Hugging Face transformers: `.safetensors` with a `config.json`.

Files keep the names of the first release; transformers 5 has other names in memory.
"""

import re

from keras_vit.checkpoints.architecture import (
    block_depth,
    check_epsilon,
    check_project,
    check_recorded,
    in_order,
    logger,
    output_size,
    torch_heads,
)
from keras_vit.checkpoints.configuration.images import preprocessor_of
from keras_vit.checkpoints.formats.base import Format
from keras_vit.checkpoints.weight_map import POSITIONS, Naming, Row, norm, two
from keras_vit.core.arguments import as_pair

WEIGHT = ("weight", "bias")
# The default of `num_attention_heads` in transformers' `ViTConfig`.
DEFAULT_HEADS = 12
LAYER = "encoder.layer.{i}"


def _dense(source, target):
    return two(source, target, "dense", names=WEIGHT)


# Names without the prefix `vit.`. In a model with a classifier, all names except those of the
# classifier have it.
HUGGINGFACE_ROWS = (
    *two(
        "embeddings.patch_embeddings.projection.",
        "patch_embedding/projection",
        "convolution",
        names=WEIGHT,
    ),
    Row("embeddings.cls_token", "class_token/token"),
    Row("embeddings.position_embeddings", POSITIONS, "positions"),
    *norm(f"{LAYER}.layernorm_before.", "block_{i}/layer_norm_1", WEIGHT),
    *(
        row
        for x in ("query", "key", "value")
        for row in two(
            f"{LAYER}.attention.attention.{x}.",
            f"block_{{i}}/attention/{x}",
            "to_heads",
            "heads_bias",
            WEIGHT,
        )
    ),
    *two(
        f"{LAYER}.attention.output.dense.", "block_{i}/attention/output", "from_heads", names=WEIGHT
    ),
    *norm(f"{LAYER}.layernorm_after.", "block_{i}/layer_norm_2", WEIGHT),
    *_dense(f"{LAYER}.intermediate.dense.", "block_{i}/mlp/dense_0"),
    *_dense(f"{LAYER}.output.dense.", "block_{i}/mlp/dense_1"),
    *norm("layernorm.", "encoder_norm", WEIGHT),
    *_dense("pooler.dense.", "pre_logits"),
    *_dense("classifier.", "head"),
)

# Activations: name in transformers, and ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",  # of several names, the last is written
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
}

# Patterns of the names that transformers 5 has in memory, and the names in files.
IN_MEMORY = [
    (r"^layers\.(\d+)\.", r"encoder.layer.\1."),
    (r"\.attention\.q_proj\.", ".attention.attention.query."),
    (r"\.attention\.k_proj\.", ".attention.attention.key."),
    (r"\.attention\.v_proj\.", ".attention.attention.value."),
    (r"\.attention\.o_proj\.", ".attention.output.dense."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
]


def find_huggingface(shapes):
    """Return the arrays of transformers' ViT; see `Format.find`."""
    marker = "embeddings.patch_embeddings.projection.weight"
    if any(name.endswith("embeddings.distillation_token") for name in shapes):
        raise ValueError(
            "`path` must be a Vision Transformer without DeiT's distillation token and its second "
            "head. Received: an array called 'distillation_token'"
        )
    prefix = next((p for p in ("vit.", "") if f"{p}{marker}" in shapes), None)
    if prefix is None or len(shapes[f"{prefix}{marker}"]) != 4:
        return None
    return Naming.of(shapes, lambda name: _name_in_files(name.removeprefix(prefix)))


def _name_in_files(name):
    for pattern, replacement in IN_MEMORY:
        name = re.sub(pattern, replacement, name)
    return name


def describe_huggingface(shape_of, config, num_heads):
    """Return the options of a transformers model, from its arrays and `config.json`."""
    check_project(config, ("model_type", "architectures"), "transformers")
    _check(config)
    width, channels, *patch_size = shape_of("patch_embedding/projection/kernel")
    num_classes = output_size(shape_of, "head", axis=0) or 0
    pooler_size = output_size(shape_of, "pre_logits", axis=0)
    if num_classes and pooler_size:
        raise ValueError(
            "`path` must not have both a classifier and a pooler: transformers has no pooler "
            "before a classifier. Received: both"
        )
    options = {
        "patch_size": tuple(patch_size),
        "embedding_dim": width,
        "depth": block_depth(shape_of),
        "num_heads": torch_heads(width, _configured_heads(config, num_heads), num_heads),
        "mlp_dim": output_size(shape_of, "block_0/mlp/dense_0", axis=0),
        "num_classes": num_classes,
        "image_channels": channels,
        "pooling": "token",
        "representation_size": pooler_size,
        "activation": ACTIVATIONS[config.get("hidden_act", "gelu")],
        "class_token": True,
        "qkv_bias": shape_of("block_0/attention/query/bias") is not None,
        "patch_bias": shape_of("patch_embedding/projection/bias") is not None,
        "epsilon": check_epsilon(config.get("layer_norm_eps", 1e-12)),
    }
    names = {
        "hidden_size": "embedding_dim",
        "num_hidden_layers": "depth",
        "intermediate_size": "mlp_dim",
        "patch_size": "patch_size",
        "num_channels": "image_channels",
        "qkv_bias": "qkv_bias",
    }
    if num_classes:
        # Without a head, transformers writes its default of two labels.
        names |= {"num_labels": "num_classes", "id2label": "num_classes"}
    labels = config.get("id2label")
    num_labels = None if labels is None else len(labels)
    check_recorded({**config, "id2label": num_labels}, names, options)
    _check_grid(shape_of(POSITIONS), config.get("image_size"), patch_size)
    return options


def _configured_heads(config, asked):
    """Return the number of heads of a `config.json`; 12 if it has none and the caller gave none.

    `None` without a `config.json`.
    """
    heads = config.get("num_attention_heads")
    if heads is not None or not config or asked is not None:
        return heads
    logger.warning(
        "the config.json does not record num_attention_heads: %d are assumed, as in transformers",
        DEFAULT_HEADS,
    )
    return DEFAULT_HEADS


def _check_grid(table, image_size, patch_size):
    """Raise an error if the position embedding is not of the configured image size."""
    if table is None or image_size is None:
        return
    sizes = as_pair(image_size, "image_size")
    rows, columns = (size // patch for size, patch in zip(sizes, patch_size, strict=True))
    if table[1:2] != (1 + rows * columns,):
        raise ValueError(
            "`image_size` of the file's config.json must fit its position embedding of shape "
            f"{table}. Received: image_size={image_size!r} with patches of {tuple(patch_size)}"
        )


def _check(config):
    rules = {
        "model_type": ("vit",),
        "hidden_act": tuple(ACTIVATIONS),
        "pooler_act": ("tanh",),
    }
    for key, allowed in rules.items():
        if config.get(key, allowed[0]) not in allowed:
            raise ValueError(
                f"`{key}` of the file's config.json must be {' or '.join(map(repr, allowed))}. "
                f"Received: {key}={config[key]!r}"
            )
    if config.get("problem_type") not in (None, "single_label_classification"):
        logger.warning(
            "the model is for problem_type=%r and not for one class per image: the softmax of its "
            "logits does not give its probabilities",
            config["problem_type"],
        )


def _spell(name, options):
    """Add `vit.` to all names but those of the classifier, in a model that has one."""
    is_backbone = not options["num_classes"]
    return name if is_backbone or name.startswith("classifier.") else f"vit.{name}"


def _configure(options, arrays, class_names, normalization, resizing):
    """Return the `config.json` and the `preprocessor_config.json`; see `Format.configure`."""
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    labels = class_names or _default_names(options["num_classes"])
    config = {
        "architectures": ["ViTForImageClassification" if labels else "ViTModel"],
        "model_type": "vit",
        "hidden_size": options["embedding_dim"],
        "num_hidden_layers": options["depth"],
        "num_attention_heads": options["num_heads"],
        "intermediate_size": options["mlp_dim"],
        # None for an activation that transformers lacks: `save_checkpoint` reads the file back and
        # refuses it.
        "hidden_act": names.get(options["activation"]),
        "hidden_dropout_prob": options["dropout"],
        "attention_probs_dropout_prob": options["attention_dropout"],
        "layer_norm_eps": options["epsilon"],
        "image_size": _one_or_both(options["image_size"]),
        "patch_size": _one_or_both(options["patch_size"]),
        "num_channels": options["image_channels"],
        "qkv_bias": options["qkv_bias"],
        "pooler_act": "tanh",
        "pooler_output_size": options["representation_size"] or options["embedding_dim"],
        "dtype": "float32",
    }
    if labels:
        config["id2label"] = dict(enumerate(labels))
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    preprocessor = preprocessor_of(options["image_size"], normalization, resizing)
    return {"config.json": config, "preprocessor_config.json": preprocessor}


def _one_or_both(pair):
    return pair[0] if pair[0] == pair[1] else list(pair)


def _class_names(config):
    names = in_order(config.get("id2label"))
    return None if isinstance(names, list) and names == _default_names(len(names)) else names


def _default_names(num_classes):
    """Return the names that transformers gives to classes without names."""
    return [f"LABEL_{index}" for index in range(num_classes)]


HUGGINGFACE = Format(
    "huggingface",
    HUGGINGFACE_ROWS,
    "`huggingface`: `.safetensors`, all but the classifier under `vit.`",
    ".safetensors",
    find_huggingface,
    describe_huggingface,
    class_names=_class_names,
    interpolation="bicubic",
    config_options=("num_heads", "activation", "epsilon"),
    config_files=("config.json", "preprocessor_config.json"),
    configure=_configure,
    spell=_spell,
)
