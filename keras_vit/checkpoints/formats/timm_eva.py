"""The layout of timm's `Eva`, for the ViT of DINOv3."""

from keras_vit.checkpoints.architecture import (
    in_order,
    initial_layer_scale,
    num_registers,
    output_size,
    torch_options,
)
from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.formats.timm import (
    BLOCK,
    arguments_of,
    check_arguments,
    check_unsupported,
    config_of,
    configured_size,
    model_arguments,
    ratio,
    refused_pooling,
)
from keras_vit.checkpoints.weight_map import Naming, Row, packed, torch_layer, torch_norm
from keras_vit.core.arguments import ROTARY_BASE
from keras_vit.models.options import VitOptions

ARCHITECTURE = "vit_small_patch16_dinov3"
# Parts of the names of architectures with the rotary positions of DINOv3.
ROTARY = ("dinov3", "lingbot")
# Arguments that change the outputs of a model, and their supported values.
SUPPORTED_VALUES = {
    "rope_type": ("dinov3",),
    "rope_temperature": (ROTARY_BASE,),
    "rope_rotate_half": (True,),
    "rope_grid_offset": (0,),
    "rope_grid_indexing": ("ij",),
    "use_rot_pos_emb": (True,),
    "use_abs_pos_emb": (False,),
    "attn_type": ("eva",),
}
EVA_ROWS = (
    *torch_layer("patch_embed.proj.", "patch_embedding/projection", "convolution"),
    Row("cls_token", "class_token/token"),
    Row("reg_token", "register_tokens/tokens"),
    *torch_norm(f"{BLOCK}.norm1.", "block_{i}/layer_norm_1"),
    # Only the kernels are packed into one array: keys have no bias.
    packed(f"{BLOCK}.attn.qkv.", "block_{i}/attention")[0],
    Row(f"{BLOCK}.attn.q_bias", "block_{i}/attention/query/bias"),
    Row(f"{BLOCK}.attn.v_bias", "block_{i}/attention/value/bias"),
    *torch_layer(f"{BLOCK}.attn.proj.", "block_{i}/attention/output"),
    Row(f"{BLOCK}.gamma_1", "block_{i}/layer_scale_1/gamma"),
    *torch_norm(f"{BLOCK}.norm2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{BLOCK}.mlp.fc1.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{BLOCK}.mlp.fc2.", "block_{i}/mlp/dense_1"),
    *torch_layer(f"{BLOCK}.mlp.fc1_g.", "block_{i}/mlp/gate"),
    *torch_layer(f"{BLOCK}.mlp.fc1_x.", "block_{i}/mlp/up"),
    *torch_layer(f"{BLOCK}.mlp.fc2.", "block_{i}/mlp/down"),
    Row(f"{BLOCK}.gamma_2", "block_{i}/layer_scale_2/gamma"),
    *torch_norm("norm.", "encoder_norm"),
    *torch_norm("fc_norm.", "fc_norm"),
    *torch_layer("head.", "head"),
)


def _find(shapes):
    has_all = {"patch_embed.proj.weight", "blocks.0.gamma_1", "cls_token"} <= set(shapes)
    return Naming.of(shapes) if has_all and "pos_embed" not in shapes else None


def _describe(shape_of, config, num_heads):
    arguments = model_arguments(config)
    _check(config.get("architecture") or ARCHITECTURE, arguments)
    gate = output_size(shape_of, "block_0/mlp/gate", axis=0)
    configured = arguments.get("num_heads")
    options = VitOptions(
        **torch_options(shape_of, configured, num_heads, gate is not None, mlp_dim=gate),
        image_size=None,
        pooling=_pooling(config, arguments),
        activation="gelu" if gate is None else "silu",
        class_token=True,
        num_registers=num_registers(shape_of),
        position_embedding="rotary",
        qkv_bias=shape_of("block_0/attention/query/bias") is not None,
        key_bias=False,
        layer_scale=initial_layer_scale(shape_of, arguments.get("init_values")),
        gated_mlp=gate is not None,
        fc_norm=shape_of("fc_norm/gamma") is not None,
        epsilon=1e-5,
    )
    names = {"num_reg_tokens": "num_registers", "swiglu_mlp": "gated_mlp"}
    check_arguments(config, options, names)
    return options


def _pooling(config, arguments):
    poolings = {"avg": "gap", "token": "token"}
    pool = arguments.get("global_pool", config.get("global_pool"))
    pool = "avg" if pool is None else pool
    if pool not in poolings:
        raise ValueError(
            f"`global_pool` of the file's config.json must be one of {tuple(poolings)}. "
            f"Received: global_pool={pool!r}"
        )
    return poolings[pool]


def _check(architecture, arguments):
    """Raise an error if timm would compute other outputs from the same arrays."""
    unsupported = {k: v for k, v in arguments.items() if v not in SUPPORTED_VALUES.get(k, (v,))}
    if not any(name in architecture for name in ROTARY):
        unsupported["architecture"] = architecture
    check_unsupported(unsupported, "with the rotary positions of DINOv3")


def _refused(options):
    names = refused_pooling(options)
    activation = "silu" if options.gated_mlp else "gelu"
    return names if options.activation == activation else [*names, "activation"]


def _configure(options, arrays, *metadata):
    arguments = arguments_of(options) | {
        "mlp_ratio": ratio(options.mlp_dim, options.embedding_dim),
        "num_reg_tokens": options.num_registers,
        "swiglu_mlp": options.gated_mlp,
        # If this is given, timm does not pack the first two layers of SwiGLU into one array.
        "swiglu_align_to": 1,
        "use_fc_norm": options.fc_norm,
    }
    return {"config.json": config_of(ARCHITECTURE, arguments, options, *metadata)}


TIMM_EVA = Format(
    "timm_eva",
    EVA_ROWS,
    "`timm_eva`: `.safetensors` of `Eva`, as for DINOv3",
    ".safetensors",
    _find,
    _describe,
    models=("DINOv3", "LingBot-Vision"),
    family="timm",
    configured_size=configured_size,
    class_names=lambda config: in_order(config.get("label_names")),
    interpolation="bicubic",
    config_options=("pooling", "num_heads", "activation", "epsilon"),
    config_files=("config.json",),
    has_normalizations=True,
    configure=_configure,
    refused=_refused,
    position_embeddings=("rotary",),
)
