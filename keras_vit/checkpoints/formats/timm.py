"""The layout of timm's `VisionTransformer`: ViT, DeiT, DINOv2, CLIP and others."""

import math
import re

from keras_vit.checkpoints.architecture import (
    check_project,
    check_recorded,
    grid_of,
    in_order,
    initial_layer_scale,
    num_registers,
    output_size,
    per_channel,
    torch_options,
)
from keras_vit.checkpoints.formats.format import Format, without_zero_rows
from keras_vit.checkpoints.weight_map import POSITIONS, Naming, Row, packed, torch_layer, torch_norm
from keras_vit.models.options import VitOptions

GLOBAL_POOLS = {"token": "token", "gap": "avg", "map": "map"}


def arguments_of(options):
    """Return the `model_args` that `VisionTransformer` and `Eva` share."""
    width, mlp_dim = options.embedding_dim, options.mlp_dim
    # In timm, the hidden width of a gated MLP includes the gate.
    hidden = 2 * mlp_dim if options.gated_mlp else mlp_dim
    return {
        "img_size": list(options.image_size),
        "patch_size": list(options.patch_size),
        "in_chans": options.image_channels,
        "embed_dim": width,
        "depth": options.depth,
        "num_heads": options.num_heads,
        "mlp_ratio": ratio(hidden, width),
        "qkv_bias": options.qkv_bias,
        "init_values": options.layer_scale,
        "class_token": options.class_token,
        "global_pool": GLOBAL_POOLS[options.pooling],
    }


def ratio(hidden, width):
    """Return the ratio from which timm computes the hidden width as `int(width * ratio)`."""
    # Rounding may make the product a little too small, so that `int` would return one less.
    exact = hidden / width
    return exact if int(width * exact) == hidden else (hidden + 0.5) / width


def config_of(architecture, arguments, options, class_names, image_spec):
    """Return the contents of a `config.json`."""
    config = {
        "architecture": architecture,
        "num_classes": options.num_classes,
        "num_features": options.embedding_dim,
        "global_pool": arguments["global_pool"],
        "model_args": arguments,
        "pretrained_cfg": {
            "num_classes": options.num_classes,
            "input_size": [options.image_channels, *options.image_size],
            "fixed_input_size": True,
            "interpolation": image_spec.interpolation,
            "crop_pct": image_spec.crop_share,
            "crop_mode": "center" if image_spec.keeps_aspect_ratio else "squash",
            "mean": per_channel(image_spec.mean, options.image_channels),
            "std": per_channel(image_spec.deviation, options.image_channels),
            "first_conv": "patch_embed.proj",
            "classifier": ["head", "head_dist"] if options.distillation_token else "head",
        },
    }
    if class_names:
        config["label_names"] = class_names
    return config


def model_arguments(config):
    """Return the `model_args` of a `config.json`; raise an error if timm did not write the file."""
    check_project(config, ("architecture", "model_args", "num_features"), "timm")
    return config.get("model_args") or {}


def check_unsupported(unsupported, rule):
    """Raise an error for unsupported settings, with which timm would compute other outputs."""
    if unsupported:
        raise ValueError(
            f"The config.json of `path` must describe a ViT {rule}. Received: "
            + ", ".join(f"{name}={value!r}" for name, value in unsupported.items())
        )


def check_arguments(config, options, names):
    """Raise an error if a `config.json` contradicts the arrays; see `check_recorded`.

    `names` are names of further arguments, for one class of timm's models.
    """
    common = {
        "embed_dim": "embedding_dim",
        "depth": "depth",
        "patch_size": "patch_size",
        "in_chans": "image_channels",
        "qkv_bias": "qkv_bias",
    }
    check_recorded(config.get("model_args") or {}, common | names, options)
    # The configuration of a backbone records 0 classes, but the file may contain a head.
    classes = {"num_classes": config.get("num_classes") or None}
    names = {"num_features": "embedding_dim", "num_classes": "num_classes"}
    check_recorded({**config, **classes}, names, options)


def configured_size(config):
    """Return the image size that a `config.json` records, or `None`."""
    size = (config.get("model_args") or {}).get("img_size")
    return size or (config.get("pretrained_cfg") or {}).get("input_size", ())[1:] or None


def refused_pooling(options):
    """Return `["pooling"]` if timm does not have the pooling; see `Format.refused`."""
    return [] if options.pooling in GLOBAL_POOLS else ["pooling"]


def configure(options, arrays, *metadata):
    """Return the `config.json` from which `timm.create_model("local-dir:...")` builds the model."""
    tokens = options.class_token + options.distillation_token + options.num_registers
    num_patches = math.prod(grid_of(options.image_size, options.patch_size))
    has_positions_for_patches_only = arrays["pos_embed"].shape[1] == num_patches
    arguments = arguments_of(options) | {
        "qk_norm": options.qk_norm,
        "no_embed_class": tokens > 0 and has_positions_for_patches_only,
        "reg_tokens": options.num_registers,
        "pre_norm": options.pre_norm,
        "fc_norm": options.fc_norm,
        "final_norm": options.final_norm,
        "act_layer": options.activation,
    }
    # `model_args` replace all settings of the named architecture, except the class of the model,
    # the packed SwiGLU, and the epsilon, which is 1e-5 in CLIP towers.
    architecture = "vit_base_patch16_224"
    if options.distillation_token:
        architecture = "deit_base_distilled_patch16_224"
    elif options.gated_mlp:
        architecture = "vit_giant_patch14_dinov2"
    elif options.epsilon == 1e-5:
        architecture = "vit_base_patch16_clip_224"
    return {"config.json": config_of(architecture, arguments, options, *metadata)}


BLOCK = "blocks.{i}"

TIMM_ROWS = (
    *torch_layer("patch_embed.proj.", "patch_embedding/projection", "convolution"),
    Row("cls_token", "class_token/token"),
    Row("dist_token", "distillation_token/token"),
    Row("reg_token", "register_tokens/tokens"),
    Row("pos_embed", POSITIONS, "positions"),
    *torch_norm("norm_pre.", "pre_norm"),
    *torch_norm(f"{BLOCK}.norm1.", "block_{i}/layer_norm_1"),
    *packed(f"{BLOCK}.attn.qkv.", "block_{i}/attention"),
    *torch_norm(f"{BLOCK}.attn.q_norm.", "block_{i}/attention/query_norm"),
    *torch_norm(f"{BLOCK}.attn.k_norm.", "block_{i}/attention/key_norm"),
    *torch_layer(f"{BLOCK}.attn.proj.", "block_{i}/attention/output"),
    Row(f"{BLOCK}.ls1.gamma", "block_{i}/layer_scale_1/gamma"),
    *torch_norm(f"{BLOCK}.norm2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{BLOCK}.mlp.fc1.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{BLOCK}.mlp.fc2.", "block_{i}/mlp/dense_1"),
    # Packed SwiGLU: one array holds the kernels of `gate` and `up`.
    *packed(f"{BLOCK}.mlp.fc1.", "block_{i}/mlp", ("gate", "up")),
    *torch_layer(f"{BLOCK}.mlp.fc2.", "block_{i}/mlp/down"),
    Row(f"{BLOCK}.ls2.gamma", "block_{i}/layer_scale_2/gamma"),
    *torch_norm("norm.", "encoder_norm"),
    *torch_norm("fc_norm.", "fc_norm"),
    Row("attn_pool.latent", "pooling/probe"),
    *torch_layer("attn_pool.q.", "pooling/attention/query"),
    *packed("attn_pool.kv.", "pooling/attention", ("key", "value")),
    *torch_layer("attn_pool.proj.", "pooling/attention/output"),
    *torch_norm("attn_pool.norm.", "pooling/layer_norm"),
    *torch_layer("attn_pool.mlp.fc1.", "pooling/mlp/dense_0"),
    *torch_layer("attn_pool.mlp.fc2.", "pooling/mlp/dense_1"),
    *torch_layer("head.", "head"),
    *torch_layer("head.", "head/class_token"),
    *torch_layer("head_dist.", "head/distillation_token"),
)

# Names of activations in timm, and their names in this package.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "quickgelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
}
# SigLIP models with the tanh GELU in timm (`timm/models/vision_transformer.py`). The other SigLIP
# models were trained with the tanh GELU too, but timm computes the erf GELU.
TANH_SIGLIP = (
    "patch32_siglip",
    "large_patch16_siglip_512",
    "large_patch16_siglip_gap_512",
    "so400m_patch16_siglip",
    "giantopt_patch16_siglip",
)
# Parts of the names of unsupported architectures, whose arrays and arguments do not show that they
# have norms after attention and MLP, rotary positions, or pooling with registers.
UNSUPPORTED_ARCHITECTURES = ("_rpn_", "vit_pe_", "test_vit3")
# Parts of the names of architectures with packed SwiGLU.
GATED = ("dinov2", "tipsv2")
# Numbers of heads of models that have another number than published models of the same width.
NUM_HEADS = {
    **{"test_vit": 2, "test_vit2": 2, "vit_base_patch16_gap_224": 16},
    "vit_giant_patch16_radio_v3": 24,
}
# Unsupported arguments, which change the outputs but not the arrays.
UNSUPPORTED = ("block_fn", "mlp_layer", "norm_layer", "attn_layer", "embed_norm_layer")
# Patterns of the names of arrays that pre-training needs, which only the files of the original
# repositories have: mask token, decoder (MAE), and heads (DINO, iBOT, DINOv2 and MSN).
PRETRAINING = (
    r"mask_token$|masked_embed$|decoder_(embed|blocks|norm|pred|pos_embed)|(dino|ibot)_head\.|"
    r"fc\.(fc|bn)\d\.|prototypes$"
)
# The last layer of DINO's head. A classifier of another project has a head without it.
DINO_HEAD = "head.last_layer."
ORIGINAL = rf"{PRETRAINING}|{DINO_HEAD}|(register|storage)_tokens$|blocks\.\d+\.\d+\."


def find_timm(shapes):
    """Return the `Naming` of timm's `VisionTransformer`, or `None`; see `Format.find`."""
    if len(shapes.get("patch_embed.proj.weight", ())) != 4 or not any(
        name.startswith("blocks.0.") for name in shapes
    ):
        return None
    # Files of `Eva` have arrays of the same names.
    is_eva = "blocks.0.gamma_1" in shapes and "pos_embed" not in shapes
    is_original = any(re.match(ORIGINAL, name) for name in shapes)
    return None if is_eva or is_original else Naming.of(shapes)


def describe_timm(shape_of, config, num_heads):
    """Return the options of a timm model; see `Format.describe`."""
    arguments = model_arguments(config)
    architecture = config.get("architecture") or ""
    _check(architecture, arguments)
    width = shape_of("patch_embedding/projection/kernel")[0]
    query_norm = shape_of("block_0/attention/query_norm/gamma")
    configured = width // query_norm[0] if query_norm else arguments.get("num_heads")
    configured = configured or NUM_HEADS.get(architecture)
    is_gated, mlp_dim = _mlp(shape_of, architecture)
    options = VitOptions(
        **torch_options(shape_of, configured, num_heads, is_gated, mlp_dim),
        image_size=None,
        pooling=_pooling(shape_of, config, arguments),
        activation=_activation(config, arguments, "silu" if is_gated else "gelu"),
        gated_mlp=is_gated,
        distillation_token=shape_of("distillation_token/token") is not None,
        class_token=shape_of("class_token/token") is not None,
        num_registers=num_registers(shape_of),
        qkv_bias=shape_of("block_0/attention/query/bias") is not None,
        patch_bias=shape_of("patch_embedding/projection/bias") is not None,
        qk_norm=query_norm is not None,
        layer_scale=initial_layer_scale(shape_of, arguments.get("init_values")),
        pre_norm=shape_of("pre_norm/gamma") is not None,
        fc_norm=shape_of("fc_norm/gamma") is not None,
        final_norm=any(shape_of(f"{x}_norm/gamma") for x in ("encoder", "fc")),
        # CLIP towers have PyTorch's default epsilon, and the other ViTs of timm have 1e-6.
        epsilon=1e-5 if "clip" in architecture else 1e-6,
    )
    names = {"class_token": "class_token", "reg_tokens": "num_registers", "qk_norm": "qk_norm"}
    check_arguments(config, options, names)
    return options


def _mlp(shape_of, architecture):
    """Return whether the MLPs are gated, and their width.

    The first layer of a gated MLP has twice as many outputs as the second layer has inputs.
    """
    outputs = output_size(shape_of, "block_0/mlp/dense_0", axis=0)
    second = shape_of("block_0/mlp/dense_1/kernel")
    if second is None or outputs != 2 * second[1]:
        return False, outputs
    if architecture and not any(name in architecture for name in GATED):
        check_unsupported({"architecture": architecture}, "whose gated MLPs are SwiGLUs")
    return True, second[1]


def _check(architecture, arguments):
    """Raise an error if timm would compute other outputs from the same arrays."""
    unsupported = {name: arguments[name] for name in UNSUPPORTED if arguments.get(name)}
    if any(name in architecture for name in UNSUPPORTED_ARCHITECTURES):
        unsupported["architecture"] = architecture
    check_unsupported(unsupported, "with timm's default layers")


def _pooling(shape_of, config, arguments):
    has_probe = shape_of("pooling/probe") is not None
    has_fc_norm = shape_of("fc_norm/gamma") is not None
    has_class_token = shape_of("class_token/token") is not None
    has_prefix = has_class_token or shape_of("register_tokens/tokens") is not None
    pool = arguments.get("global_pool", config.get("global_pool"))
    if pool is None:
        pool = "map" if has_probe else "avg" if has_fc_norm or not has_class_token else "token"
    includes_prefix = bool(arguments.get("pool_include_prefix")) and has_prefix
    supported = ("token", "avg", "map")
    if pool not in supported or includes_prefix or (has_fc_norm and pool != "avg"):
        raise ValueError(
            f"`global_pool` of the file's config.json must be one of {supported}, and 'avg' if "
            "there is an `fc_norm`; it must not include class and register tokens. Received: "
            f"global_pool={pool!r}, pool_include_prefix={includes_prefix}, fc_norm={has_fc_norm}"
        )
    return "gap" if pool == "avg" else pool


def _activation(config, arguments, default):
    architecture = config.get("architecture") or ""
    name = arguments.get("act_layer")
    if name is None and "quickgelu" in architecture:
        name = "quick_gelu"
    if name is None and "siglip" in architecture:
        is_tanh = any(part in architecture for part in TANH_SIGLIP)
        name = "gelu_tanh" if is_tanh else "gelu"
    name = name or default
    if name not in ACTIVATIONS:
        raise ValueError(
            f"`act_layer` of the file's config.json must be one of {', '.join(ACTIVATIONS)}. "
            f"Received: act_layer={name!r}"
        )
    return ACTIVATIONS[name]


def _prefix_rows(num_tokens, shape_of):
    """Return the possible numbers of positions before those of the patches, the likeliest first.

    DeiT III and models with registers have no positions for class and register tokens, but Meta's
    files of DINOv2 with registers have a position for the class token. Models with a distillation
    token, and models without LayerScale and registers, have one position per token.
    """
    if shape_of("distillation_token/token") is not None:
        return (num_tokens,)
    has_registers = shape_of("register_tokens/tokens") is not None
    has_none = has_registers or shape_of("block_0/layer_scale_1/gamma") is not None
    return (0, num_tokens, 1) if has_none else (num_tokens, 0)


def _store_positions(values, num_tokens):
    is_distilled = "distillation_token/token" in values
    return values if is_distilled else without_zero_rows(values, num_tokens)


def _refused(options):
    """List the options of a model that timm does not have; see `Format.refused`.

    In timm, models with a distillation token have neither registers nor gated MLPs. Without
    classes, they return the mean of the class token and the distillation token.
    """
    names = refused_pooling(options)
    has_others = options.num_registers or options.gated_mlp
    if options.distillation_token and (has_others or not options.num_classes):
        names += ["distillation_token", "num_classes", "num_registers", "gated_mlp"]
    return names


TIMM = Format(
    "timm",
    TIMM_ROWS,
    "`timm`: `.safetensors`",
    ".safetensors",
    find_timm,
    describe_timm,
    models=(
        *("ViT", "DeiT", "DeiT III", "DINOv2", "MAE", "MSN", "SigLIP", "CLIP", "RADIO"),
        "`VisionTransformerDistilled`",
    ),
    prefix_rows=_prefix_rows,
    configured_size=configured_size,
    class_names=lambda config: in_order(config.get("label_names")),
    interpolation="bicubic",
    config_options=("pooling", "num_heads", "activation", "epsilon"),
    config_files=("config.json",),
    has_normalizations=True,
    configure=configure,
    refused=_refused,
    has_patch_bias=lambda options: not options.pre_norm,
    store_positions=_store_positions,
)
