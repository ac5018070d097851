"""The layouts of ViT in transformers, and of ViT-MSN and ViT-MAE, which have the same arrays."""

from keras_vit.checkpoints.architecture import check_setting, grid_of, output_size
from keras_vit.checkpoints.formats.transformers.common import (
    Defaults,
    describe_encoder,
    settings_of,
    torch_attention,
    transformers_format,
)
from keras_vit.checkpoints.weight_map import (
    POSITIONS,
    Row,
    finder,
    renamer,
    torch_layer,
    torch_norm,
)
from keras_vit.core.arguments import as_pair

LAYER = "encoder.layer.{i}"
PATCHES = "embeddings.patch_embeddings.projection.weight"
PROJECTIONS = ("attention.query", "attention.key", "attention.value", "output.dense")

EMBEDDING_ROWS = (
    *torch_layer(
        "embeddings.patch_embeddings.projection.", "patch_embedding/projection", "convolution"
    ),
    Row("embeddings.cls_token", "class_token/token"),
    Row("embeddings.position_embeddings", POSITIONS, "positions"),
)
# Names without the prefix `vit.`. In a model with a classifier, all names except those of the
# classifier have this prefix.
ENCODER_ROWS = (
    *EMBEDDING_ROWS,
    *torch_norm(f"{LAYER}.layernorm_before.", "block_{i}/layer_norm_1"),
    *torch_attention(f"{LAYER}.attention.", "block_{i}/attention", PROJECTIONS),
    *torch_norm(f"{LAYER}.layernorm_after.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{LAYER}.intermediate.dense.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{LAYER}.output.dense.", "block_{i}/mlp/dense_1"),
    *torch_norm("layernorm.", "encoder_norm"),
)
CLASSIFIER_ROWS = torch_layer("classifier.", "head")
HUGGINGFACE_ROWS = (*ENCODER_ROWS, *torch_layer("pooler.dense.", "pre_logits"), *CLASSIFIER_ROWS)

# Patterns of names that models of transformers 5 have in memory, and the names in files.
IN_MEMORY = [
    (r"^layers\.(\d+)\.", r"encoder.layer.\1."),
    (r"\.attention\.q_proj\.", ".attention.attention.query."),
    (r"\.attention\.k_proj\.", ".attention.attention.key."),
    (r"\.attention\.v_proj\.", ".attention.attention.value."),
    (r"\.attention\.o_proj\.", ".attention.output.dense."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
]


# Returns the name of an array in files, given this name or the name in memory.
name_in_files = renamer(IN_MEMORY)

find_huggingface = finder(
    [PATCHES],
    ("vit.", ""),
    # Files with these arrays are of DeiT or of DINOv2.
    absent=("embeddings.distillation_token", "encoder.layer.0.layer_scale1.lambda1"),
    ignored="decoder|embeddings.mask_token$",
    rename=name_in_files,
)

VIT = Defaults(("vit",), epsilon=1e-12)


def describe_vit(shape_of, config, num_heads, defaults, **fields):
    """Return the options of a model with the arrays of ViT; see `describe_encoder`."""
    pooler_size = output_size(shape_of, "pre_logits", axis=0)
    if pooler_size:
        check_setting(config, "pooler_act", "tanh")
    options = describe_encoder(
        shape_of, config, num_heads, defaults, representation_size=pooler_size, **fields
    )
    if options.num_classes and pooler_size:
        raise ValueError(
            "`path` must not have both a classifier and a pooler: transformers has no pooler "
            "before a classifier. Received: both"
        )
    tokens = 1 + options.distillation_token + options.num_registers
    table, image_size = shape_of(POSITIONS), config.get("image_size")
    if table is not None and image_size is not None:
        rows, columns = grid_of(as_pair(image_size, "image_size"), options.patch_size)
        if table[1:2] != (tokens + rows * columns,):
            raise ValueError(
                "`image_size` of the file's config.json must fit its position embedding of shape "
                f"{table}. Received: image_size={image_size!r} with patches of "
                f"{tuple(options.patch_size)}"
            )
    return options


def vit_settings(options):
    """Return the settings of a `config.json` that ViT, DeiT, ViT-MSN and ViT-MAE share."""
    return {
        **settings_of(options),
        "intermediate_size": options.mlp_dim,
        "hidden_dropout_prob": options.dropout,
        "attention_probs_dropout_prob": options.attention_dropout,
        "qkv_bias": options.qkv_bias,
        "pooler_act": "tanh",
        "pooler_output_size": options.representation_size or options.embedding_dim,
    }


def prefixer(prefix, *heads):
    """Return a function for `Format.written_name`.

    In a model with a classifier, all names have the prefix, except those that begin with one of
    `heads`.
    """

    def written_name(name, options):
        is_backbone = not options.num_classes
        return name if is_backbone or name.startswith(heads) else f"{prefix}{name}"

    return written_name


def _layout(name, title, rows, defaults, model, classifier=None, extra_settings=None, **fields):
    """Return the row of a model with the arrays of ViT."""

    def config_of(options):
        architecture = classifier if options.num_classes else model
        return architecture, defaults.model_types[0], vit_settings(options) | (extra_settings or {})

    return transformers_format(
        name,
        rows,
        title,
        find_huggingface,
        lambda shape_of, config, num_heads: describe_vit(shape_of, config, num_heads, defaults),
        defaults,
        config_of,
        models=tuple(filter(None, (model, classifier))),
        **{"interpolation": "cubic", **fields},
        written_name=prefixer("vit.", "classifier."),
    )


HUGGINGFACE = _layout(
    "huggingface",
    "`huggingface`: `.safetensors` of ViT, all but the classifier under `vit.`",
    HUGGINGFACE_ROWS,
    VIT,
    "ViTModel",
    "ViTForImageClassification",
    read_only_models=("ViTForMaskedImageModeling",),
    # Antialiased, as in timm; transformers resizes without antialiasing.
    interpolation="bicubic",
)
VIT_MAE = _layout(
    "huggingface_vit_mae",
    "`huggingface_vit_mae`: `.safetensors` of the encoder of ViT-MAE",
    ENCODER_ROWS,
    Defaults(("vit_mae",), epsilon=1e-12),
    "ViTMAEModel",
    read_only_models=("ViTMAEForPreTraining",),
    # By default, transformers would mask three of four patches, even at inference.
    extra_settings={"mask_ratio": 0.0},
)
VIT_MSN = _layout(
    "huggingface_vit_msn",
    "`huggingface_vit_msn`: `.safetensors` of ViT-MSN, all but the classifier under `vit.`",
    (*ENCODER_ROWS, *CLASSIFIER_ROWS),
    Defaults(("vit_msn",), epsilon=1e-6),
    "ViTMSNModel",
    "ViTMSNForImageClassification",
)
