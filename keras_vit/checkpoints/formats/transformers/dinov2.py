"""The layouts of DINOv2 in transformers, without and with register tokens."""

import functools

import numpy as np

from keras_vit.checkpoints.architecture import (
    check_recorded,
    not_square,
    num_registers,
    output_size,
)
from keras_vit.checkpoints.formats.transformers.common import (
    Defaults,
    describe_encoder,
    settings_of,
    torch_attention,
    transformers_format,
)
from keras_vit.checkpoints.formats.transformers.vit import (
    CLASSIFIER_ROWS,
    EMBEDDING_ROWS,
    LAYER,
    PATCHES,
    PROJECTIONS,
    prefixer,
)
from keras_vit.checkpoints.weight_map import POSITIONS, Row, finder, packed, torch_layer, torch_norm
from keras_vit.core.arguments import as_pair

REGISTERS = "register_tokens/tokens"
DINOV2_ROWS = (
    *EMBEDDING_ROWS,
    *torch_norm(f"{LAYER}.norm1.", "block_{i}/layer_norm_1"),
    *torch_attention(f"{LAYER}.attention.", "block_{i}/attention", PROJECTIONS),
    Row(f"{LAYER}.layer_scale1.lambda1", "block_{i}/layer_scale_1/gamma"),
    *torch_norm(f"{LAYER}.norm2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{LAYER}.mlp.fc1.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{LAYER}.mlp.fc2.", "block_{i}/mlp/dense_1"),
    *packed(f"{LAYER}.mlp.weights_in.", "block_{i}/mlp", ("gate", "up")),
    *torch_layer(f"{LAYER}.mlp.weights_out.", "block_{i}/mlp/down"),
    Row(f"{LAYER}.layer_scale2.lambda1", "block_{i}/layer_scale_2/gamma"),
    *torch_norm("layernorm.", "encoder_norm"),
    *CLASSIFIER_ROWS,
)
SCALE = "encoder.layer.0.layer_scale1.lambda1"
REGISTER_ROW = Row("embeddings.register_tokens", REGISTERS)


def _describe(defaults, shape_of, config, num_heads):
    # For images that are not square, transformers would compute a wrong grid, a square one.
    height, width = as_pair(config.get("image_size") or 1, "image_size")
    if height != width:
        raise ValueError(
            "`image_size` of the file's config.json must be square for DINOv2. "
            f"Received: image_size={config['image_size']!r}"
        )
    gate = output_size(shape_of, "block_0/mlp/gate", axis=0)
    fields = {
        "pooling": "token_gap" if shape_of("head/kernel") else "token",
        # The file contains the trained factors, but not their initial value.
        "layer_scale": config.get("layerscale_value", 1.0),
        "num_registers": num_registers(shape_of),
        "gated_mlp": gate is not None,
    }
    if gate:
        # transformers ignores `hidden_act` in gated MLPs.
        fields |= {"mlp_dim": gate // 2, "activation": "silu"}
    options = describe_encoder(shape_of, config, num_heads, defaults, **fields)
    names = {"use_swiglu_ffn": "gated_mlp", "num_register_tokens": "num_registers"}
    check_recorded(config, names, options)
    return options


def _refused(options):
    # All gated MLPs of DINOv2 are SwiGLUs.
    is_gated_but_no_swiglu = options.gated_mlp and options.activation != "silu"
    names = [*not_square(options), *["activation"] * is_gated_but_no_swiglu]
    return names if _mlp_ratio(options) else [*names, "mlp_dim", "embedding_dim"]


def _mlp_ratio(options):
    """Return the integer from which transformers computes the width of the MLP, or `None`."""
    width, mlp_dim = options.embedding_dim, options.mlp_dim
    for ratio in range(1, 4 * mlp_dim // width + 2):
        hidden = width * ratio
        if options.gated_mlp:
            hidden = (int(hidden * 2 / 3) + 7) // 8 * 8
        if hidden == mlp_dim:
            return ratio
    return None


def _config_of(class_prefix, model_type, options):
    settings = {
        **settings_of(options),
        "mlp_ratio": _mlp_ratio(options),
        "hidden_dropout_prob": options.dropout,
        "attention_probs_dropout_prob": options.attention_dropout,
        "qkv_bias": options.qkv_bias,
        "layerscale_value": options.layer_scale,
        "use_swiglu_ffn": options.gated_mlp,
    }
    if options.gated_mlp:
        settings["hidden_act"] = "gelu"
    if model_type == "dinov2":
        settings["use_mask_token"] = False
    else:
        settings["num_register_tokens"] = options.num_registers
    suffix = "ForImageClassification" if options.num_classes else "Model"
    return f"{class_prefix}{suffix}", model_type, settings


def _without_register_positions(values, num_tokens):
    """Add the positions of registers to their tokens: transformers has no such positions."""
    if REGISTERS not in values:
        return values
    table = values[POSITIONS]
    tokens = values[REGISTERS] + table[:, 1:num_tokens]
    table = np.concatenate([table[:, :1], table[:, num_tokens:]], axis=1)
    return {**values, REGISTERS: tokens, POSITIONS: table}


def unused_tokens(options, leading_shape=(1,)):
    """Return arrays that transformers saves although the model does not use them.

    They are the mask token of pre-training and, for a model without registers, an empty array of
    registers. `leading_shape` is the shape of the mask token without its width.
    """
    width = options.embedding_dim
    constants = {"embeddings.mask_token": np.zeros((*leading_shape, width), "float32")}
    if not options.num_registers:
        constants[REGISTER_ROW.source] = np.zeros((1, 0, width), "float32")
    return constants


def _layout(class_prefix, model_type, rows, absent=(), **fields):
    defaults = Defaults((model_type,), epsilon=1e-6)
    markers = [PATCHES, SCALE, *(() if absent else [REGISTER_ROW.source])]
    return transformers_format(
        f"huggingface_{model_type}",
        rows,
        f"`huggingface_{model_type}`: `.safetensors` of DINOv2, all but the classifier under "
        f"`{model_type}.`",
        finder(markers, (f"{model_type}.", ""), "embeddings.mask_token$", absent),
        functools.partial(_describe, defaults),
        defaults,
        functools.partial(_config_of, class_prefix, model_type),
        models=(f"{class_prefix}Model", f"{class_prefix}ForImageClassification"),
        refused=_refused,
        written_name=prefixer(f"{model_type}.", "classifier."),
        **fields,
    )


DINOV2 = _layout(
    "Dinov2", "dinov2", DINOV2_ROWS, absent=[REGISTER_ROW.source], interpolation="cubic"
)
DINOV2_WITH_REGISTERS = _layout(
    "Dinov2WithRegisters",
    "dinov2_with_registers",
    (*DINOV2_ROWS, REGISTER_ROW),
    # Antialiased, unlike in models without registers.
    interpolation="bicubic",
    prefix_rows=lambda num_tokens, shape_of: (1,),
    store_positions=_without_register_positions,
    constants=unused_tokens,
)
