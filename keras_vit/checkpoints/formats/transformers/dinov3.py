"""The layout of DINOv3's ViT in transformers, with rotary positions and register tokens."""

import dataclasses
import re

from keras_vit.checkpoints.architecture import (
    check_recorded,
    check_setting,
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
from keras_vit.checkpoints.formats.transformers.dinov2 import unused_tokens
from keras_vit.checkpoints.weight_map import Row, finder, torch_layer, torch_norm
from keras_vit.core.arguments import ROTARY_BASE

LAYER = "layer.{i}"
DEFAULTS = Defaults(("dinov3_vit",), epsilon=1e-5, num_heads=6)
DINOV3_ROWS = (
    *torch_layer("embeddings.patch_embeddings.", "patch_embedding/projection", "convolution"),
    Row("embeddings.cls_token", "class_token/token"),
    Row("embeddings.register_tokens", "register_tokens/tokens"),
    *torch_norm(f"{LAYER}.norm1.", "block_{i}/layer_norm_1"),
    *torch_attention(
        f"{LAYER}.attention.", "block_{i}/attention", ("q_proj", "k_proj", "v_proj", "o_proj")
    ),
    Row(f"{LAYER}.layer_scale1.lambda1", "block_{i}/layer_scale_1/gamma"),
    *torch_norm(f"{LAYER}.norm2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{LAYER}.mlp.up_proj.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{LAYER}.mlp.down_proj.", "block_{i}/mlp/dense_1"),
    *torch_layer(f"{LAYER}.mlp.gate_proj.", "block_{i}/mlp/gate"),
    *torch_layer(f"{LAYER}.mlp.up_proj.", "block_{i}/mlp/up"),
    *torch_layer(f"{LAYER}.mlp.down_proj.", "block_{i}/mlp/down"),
    Row(f"{LAYER}.layer_scale2.lambda1", "block_{i}/layer_scale_2/gamma"),
    *torch_norm("norm.", "encoder_norm"),
)


def _describe(shape_of, config, num_heads):
    check_setting(config, "rope_theta", ROTARY_BASE)
    is_gated = output_size(shape_of, "block_0/mlp/gate", axis=0) is not None
    # Without a config.json, gated MLPs are assumed to be SwiGLUs, as in all published models.
    activation = DEFAULTS.activation if config or not is_gated else "silu"
    defaults = dataclasses.replace(DEFAULTS, activation=activation)
    fields = {
        "position_embedding": "rotary",
        "num_registers": num_registers(shape_of),
        "layer_scale": config.get("layerscale_value", 1.0),
        "gated_mlp": is_gated,
        "key_bias": shape_of("block_0/attention/key/bias") is not None,
    }
    options = describe_encoder(shape_of, config, num_heads, defaults, **fields)
    names = {
        "use_gated_mlp": "gated_mlp",
        "num_register_tokens": "num_registers",
        "query_bias": "qkv_bias",
        "key_bias": "key_bias",
        "value_bias": "qkv_bias",
    }
    check_recorded(config, names, options)
    return options


def _config_of(options):
    settings = {
        **settings_of(options),
        "intermediate_size": options.mlp_dim,
        "attention_dropout": options.attention_dropout,
        "query_bias": options.qkv_bias,
        "key_bias": options.key_bias,
        "value_bias": options.qkv_bias,
        "layerscale_value": options.layer_scale,
        "use_gated_mlp": options.gated_mlp,
        "num_register_tokens": options.num_registers,
        "rope_theta": ROTARY_BASE,
    }
    return "DINOv3ViTModel", "dinov3_vit", settings


DINOV3 = transformers_format(
    "huggingface_dinov3_vit",
    DINOV3_ROWS,
    "`huggingface_dinov3_vit`: `.safetensors` of DINOv3's ViT",
    finder(
        ["embeddings.patch_embeddings.weight", "layer.0.attention.q_proj.weight"],
        ("",),
        ignored=r"embeddings.mask_token$|rope_embeddings\.",
        rename=lambda name: re.sub(r"^model\.layer\.", "layer.", name),
    ),
    _describe,
    DEFAULTS,
    _config_of,
    models=("DINOv3ViTModel",),
    position_embeddings=("rotary",),
    constants=lambda options: unused_tokens(options, (1, 1)),
)
