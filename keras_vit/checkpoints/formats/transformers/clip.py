"""The layout of CLIP's image tower in transformers, and functions for the towers of SigLIP."""

import numpy as np

from keras_vit.checkpoints.architecture import check_recorded, not_square, output_size
from keras_vit.checkpoints.formats.transformers.common import (
    Defaults,
    describe_encoder,
    settings_of,
    torch_attention,
    transformers_format,
)
from keras_vit.checkpoints.weight_map import POSITIONS, Row, finder, torch_layer, torch_norm

LAYER = "encoder.layers.{i}"
PATCHES = "embeddings.patch_embedding.weight"
CLASS_TOKEN = "embeddings.class_embedding"
POST_NORM = "post_layernorm."
PROJECTIONS = tuple(f"self_attn.{x}" for x in ("q_proj", "k_proj", "v_proj", "out_proj"))
# Names of arrays outside the image tower: the text tower, the factors of the contrastive loss, and
# indices that older versions stored.
NOT_THE_TOWER = r"text_model\.|text_projection\.|logit_|embeddings\.position_ids$"
DEFAULTS = Defaults(("clip_vision_model", "clip"), epsilon=1e-5, activation="quick_gelu")

# Rows of the blocks of CLIP and of SigLIP, without the prefix `vision_model.`.
BLOCK_ROWS = (
    *torch_norm(f"{LAYER}.layer_norm1.", "block_{i}/layer_norm_1"),
    *torch_attention(f"{LAYER}.", "block_{i}/attention", PROJECTIONS),
    *torch_norm(f"{LAYER}.layer_norm2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{LAYER}.mlp.fc1.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{LAYER}.mlp.fc2.", "block_{i}/mlp/dense_1"),
    *torch_norm(POST_NORM, "encoder_norm"),
)
CLIP_ROWS = (
    Row(PATCHES, "patch_embedding/projection/kernel", "convolution"),
    Row(CLASS_TOKEN, "class_token/token", "flat_token"),
    Row("embeddings.position_embedding.weight", POSITIONS, "flat_positions"),
    # The name is misspelled in transformers.
    *torch_norm("pre_layrnorm.", "pre_norm"),
    *BLOCK_ROWS,
    Row("visual_projection.weight", "projection/kernel", "dense"),
    *torch_layer("classifier.", "head"),
)


def tower_settings(config):
    """Return the settings of the image tower: a part of the `config.json`, or the whole file."""
    # Old files may have both keys; transformers then uses only the first key.
    return config.get("vision_config_dict") or config.get("vision_config") or config


def tower_finder(markers, ignored_with_classifier, absent=()):
    """Return a function for `Format.find`, as `finder` does.

    The pattern `ignored_with_classifier` is for arrays that models with a classifier do not use,
    because they classify the mean of the patches.
    """

    def find(shapes):
        ignored = NOT_THE_TOWER
        if "classifier.weight" in shapes:
            ignored += f"|{ignored_with_classifier}"
        return finder(markers, ("vision_model.", ""), ignored, absent)(shapes)

    return find


def written_tower_name(name, options):
    """Return the name in the file: all names but those of heads begin with `vision_model.`."""
    is_head = name.startswith(("classifier.", "visual_projection."))
    return name if is_head else f"vision_model.{name}"


def _describe(shape_of, config, num_heads):
    settings = tower_settings(config)
    is_classifier = shape_of("head/kernel") is not None
    fields = {
        "pooling": "gap" if is_classifier else "token",
        "final_norm": not is_classifier,
        "pre_norm": True,
        "projection_dim": output_size(shape_of, "projection", axis=0),
    }
    options = describe_encoder(shape_of, config, num_heads, DEFAULTS, settings, **fields)
    if options.projection_dim:
        # A model of two towers does not use the `projection_dim` in the image tower's settings.
        recorded = config if "projection_dim" in config else settings
        check_recorded(recorded, {"projection_dim": "projection_dim"}, options)
    return options


def _config_of(options):
    settings = {
        **settings_of(options),
        "intermediate_size": options.mlp_dim,
        "attention_dropout": options.attention_dropout,
    }
    if options.projection_dim:
        settings["projection_dim"] = options.projection_dim
    architecture, model_type = "CLIPVisionModel", "clip_vision_model"
    if options.num_classes:
        architecture, model_type = "CLIPForImageClassification", "clip"
        settings = {"vision_config": {"model_type": "clip_vision_model", **settings}}
    elif options.projection_dim:
        architecture = "CLIPVisionModelWithProjection"
    return architecture, model_type, settings


def _constants(options):
    """Return the arrays of the final norm, which a classifier contains but does not use."""
    if options.final_norm:
        return {}
    width = options.embedding_dim
    values = {"weight": np.ones(width, "float32"), "bias": np.zeros(width, "float32")}
    return {f"{POST_NORM}{name}": value for name, value in values.items()}


CLIP = transformers_format(
    "huggingface_clip",
    CLIP_ROWS,
    "`huggingface_clip`: `.safetensors` of CLIP, all but the heads under `vision_model.`",
    tower_finder([PATCHES, CLASS_TOKEN], POST_NORM),
    _describe,
    DEFAULTS,
    _config_of,
    models=("CLIPVisionModel", "CLIPVisionModelWithProjection", "CLIPForImageClassification"),
    read_only_models=("CLIPModel",),
    configured_size=lambda config: tower_settings(config).get("image_size"),
    interpolation="cubic",
    refused=not_square,
    has_patch_bias=lambda options: False,
    constants=_constants,
    written_name=written_tower_name,
)
