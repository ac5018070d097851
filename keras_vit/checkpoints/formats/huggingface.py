"""The ViT of Hugging Face transformers: `.safetensors` with a `config.json` beside.

Files keep the names of the first release; in memory, transformers 5 has others.
"""

import re

from keras_vit.checkpoints.architecture import (
    block_depth,
    check_epsilon,
    check_project,
    check_told,
    first_of,
    logger,
    per_channel,
    torch_heads,
)
from keras_vit.checkpoints.class_names import default_names
from keras_vit.checkpoints.weight_map import Format, Naming, Row, norm, two
from keras_vit.core.arguments import as_pair

WEIGHT = ("weight", "bias")
# `num_attention_heads` of transformers' `ViTConfig`, where none is given.
DEFAULT_HEADS = 12
LAYER = "encoder.layer.{i}"


def _dense(source, target):
    return two(source, target, "dense", names=WEIGHT)


# Names without the `vit.` that a model with a classifier puts before all the rest.
HUGGINGFACE_ROWS = (
    *two(
        "embeddings.patch_embeddings.projection.",
        "patch_embedding/projection",
        "convolution",
        names=WEIGHT,
    ),
    Row("embeddings.cls_token", "class_token/token"),
    Row("embeddings.position_embeddings", "position_embedding/embedding", "positions"),
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

# Its names of activations, for ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",  # written: the last of the names of one function
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
}

# From the names in memory of transformers 5 to those in its files.
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
    """The arrays of transformers' ViT, or `None` for a file of another kind."""
    marker = "embeddings.patch_embeddings.projection.weight"
    if any(name.endswith("embeddings.distillation_token") for name in shapes):
        raise ValueError(
            "`path` must be a Vision Transformer without DeiT's distillation token, which has a "
            "second head. Received: an array called 'distillation_token'"
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
    """The options of a transformers model, from its arrays and its configuration."""
    check_project(config, ("model_type", "architectures"), "transformers")
    _check(config)
    width, channels, *patch_size = shape_of("patch_embedding/projection/kernel")
    mlp_dim = first_of(shape_of, "block_0/mlp/dense_0/bias", "block_0/mlp/dense_0/kernel")
    head = first_of(shape_of, "head/bias", "head/kernel")
    pooler = first_of(shape_of, "pre_logits/bias", "pre_logits/kernel")
    if head and pooler:
        raise ValueError(
            "`path` must have a classifier or a pooler: transformers leaves the pooler out before "
            "a classifier. Received: both"
        )
    options = {
        "patch_size": tuple(patch_size),
        "embedding_dim": width,
        "depth": block_depth(shape_of),
        "num_heads": torch_heads(width, _configured_heads(config, num_heads), num_heads),
        "mlp_dim": mlp_dim[0] if mlp_dim else None,
        "num_classes": head[0] if head else 0,
        "image_channels": channels,
        "pooling": "token",
        "representation_size": pooler[0] if pooler else None,
        "activation": ACTIVATIONS[config.get("hidden_act", "gelu")],
        "class_token": True,
        "qkv_bias": shape_of("block_0/attention/query/bias") is not None,
        "epsilon": check_epsilon(config.get("layer_norm_eps", 1e-12)),
    }
    told = {
        "hidden_size": "embedding_dim",
        "num_hidden_layers": "depth",
        "intermediate_size": "mlp_dim",
        "patch_size": "patch_size",
        "num_channels": "image_channels",
        "qkv_bias": "qkv_bias",
    }
    told = {name: (config.get(name), option) for name, option in told.items()}
    if head:
        # Without a head, transformers writes its default of two labels.
        labels = config.get("id2label")
        told["num_labels"] = (config.get("num_labels"), "num_classes")
        told["id2label"] = (None if labels is None else len(labels), "num_classes")
    check_told(told, options)
    _check_grid(shape_of("position_embedding/embedding"), config.get("image_size"), patch_size)
    return options


def _configured_heads(config, asked):
    """Heads of the configuration; as in transformers, 12 if it does not name their number."""
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
            "`image_size` of the file's config.json must be that of its position embedding, "
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
            "the model is for problem_type=%r: its logits are not of classes that exclude each "
            "other, and probabilities by softmax are not its own",
            config["problem_type"],
        )


def file_name(name, options):
    """The name of an array in a file: all but the classifier is in a model called `vit`."""
    is_backbone = not options["num_classes"]
    return name if is_backbone or name.startswith("classifier.") else f"vit.{name}"


def configuration(options, arrays, class_names=None, normalization=((0.5,), (0.5,))):
    """The `config.json` and the `preprocessor_config.json` of a transformers model.

    Args:
        options: of `vision_transformer`.
        arrays: of the file, by name.
        class_names: names of the classes, or `None`.
        normalization: as in `save_checkpoint`.

    Returns:
        The contents of the files beside the weights, by file name.
    """
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    height, width = options["image_size"]
    labels = class_names or default_names(options["num_classes"])
    config = {
        "architectures": ["ViTForImageClassification" if labels else "ViTModel"],
        "model_type": "vit",
        "hidden_size": options["embedding_dim"],
        "num_hidden_layers": options["depth"],
        "num_attention_heads": options["num_heads"],
        "intermediate_size": options["mlp_dim"],
        # An activation without a name there is found out when the file is read back.
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
    preprocessor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": 2,  # PIL's bilinear
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": per_channel(normalization[0]),
        "image_std": per_channel(normalization[1]),
    }
    return {"config.json": config, "preprocessor_config.json": preprocessor}


def _one_or_both(pair):
    return pair[0] if pair[0] == pair[1] else list(pair)


HUGGINGFACE = Format(
    "huggingface",
    HUGGINGFACE_ROWS,
    find_huggingface,
    describe_huggingface,
    interpolation="bicubic",
)
