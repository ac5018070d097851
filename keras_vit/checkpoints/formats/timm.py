"""timm's `VisionTransformer`: `.safetensors` with a `config.json`."""

from keras_vit.checkpoints.architecture import (
    block_depth,
    check_project,
    check_recorded,
    in_order,
    output_size,
    per_channel,
    torch_heads,
)
from keras_vit.checkpoints.formats.base import Format, without_zero_rows
from keras_vit.checkpoints.weight_map import POSITIONS, Naming, Row, norm, two

WEIGHT = ("weight", "bias")
BLOCK = "blocks.{i}"


def _dense(source, target):
    return two(source, target, "dense", names=WEIGHT)


TIMM_ROWS = (
    *two("patch_embed.proj.", "patch_embedding/projection", "convolution", names=WEIGHT),
    Row("cls_token", "class_token/token"),
    Row("reg_token", "register_tokens/tokens"),
    Row("pos_embed", POSITIONS, "positions"),
    *norm("norm_pre.", "pre_norm", WEIGHT),
    *norm(f"{BLOCK}.norm1.", "block_{i}/layer_norm_1", WEIGHT),
    Row(
        f"{BLOCK}.attn.qkv.weight",
        tuple(f"block_{{i}}/attention/{x}/kernel" for x in ("query", "key", "value")),
        "split_to_heads",
    ),
    Row(
        f"{BLOCK}.attn.qkv.bias",
        tuple(f"block_{{i}}/attention/{x}/bias" for x in ("query", "key", "value")),
        "split_heads_bias",
    ),
    *norm(f"{BLOCK}.attn.q_norm.", "block_{i}/attention/query_norm", WEIGHT),
    *norm(f"{BLOCK}.attn.k_norm.", "block_{i}/attention/key_norm", WEIGHT),
    *two(f"{BLOCK}.attn.proj.", "block_{i}/attention/output", "from_heads", names=WEIGHT),
    Row(f"{BLOCK}.ls1.gamma", "block_{i}/layer_scale_1/gamma"),
    *norm(f"{BLOCK}.norm2.", "block_{i}/layer_norm_2", WEIGHT),
    *_dense(f"{BLOCK}.mlp.fc1.", "block_{i}/mlp/dense_0"),
    *_dense(f"{BLOCK}.mlp.fc2.", "block_{i}/mlp/dense_1"),
    Row(f"{BLOCK}.ls2.gamma", "block_{i}/layer_scale_2/gamma"),
    *norm("norm.", "encoder_norm", WEIGHT),
    *norm("fc_norm.", "fc_norm", WEIGHT),
    Row("attn_pool.latent", "pooling/probe"),
    *two("attn_pool.q.", "pooling/attention/query", "to_heads", "heads_bias", WEIGHT),
    Row(
        "attn_pool.kv.weight",
        ("pooling/attention/key/kernel", "pooling/attention/value/kernel"),
        "split_to_heads",
    ),
    Row(
        "attn_pool.kv.bias",
        ("pooling/attention/key/bias", "pooling/attention/value/bias"),
        "split_heads_bias",
    ),
    *two("attn_pool.proj.", "pooling/attention/output", "from_heads", names=WEIGHT),
    *norm("attn_pool.norm.", "pooling/layer_norm", WEIGHT),
    *_dense("attn_pool.mlp.fc1.", "pooling/mlp/dense_0"),
    *_dense("attn_pool.mlp.fc2.", "pooling/mlp/dense_1"),
    *_dense("head.", "head"),
)

# Activations: name in timm, and ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "quickgelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
}
# SigLIP models with the tanh GELU in timm (`timm/models/vision_transformer.py`). The others
# were trained with it too, but timm computes the erf.
TANH_SIGLIP = (
    "patch32_siglip",
    "large_patch16_siglip_512",
    "large_patch16_siglip_gap_512",
    "so400m_patch16_siglip",
    "giantopt_patch16_siglip",
)
# Parts of the names of architectures that have the same arrays and arguments, but compute another
# function: norms after attention and MLP, rotary positions, pooling with registers.
OTHER_ARCHITECTURES = ("_rpn_", "vit_pe_", "test_vit3")
# Models whose number of heads is neither width / 64 nor that of the published model of this width.
HEADS = {"test_vit": 2, "test_vit2": 2, "vit_base_patch16_gap_224": 16}
# Arguments that change the function, but not the arrays.
OTHER_FUNCTIONS = ("block_fn", "mlp_layer", "norm_layer", "attn_layer", "embed_norm_layer")


def find_timm(shapes):
    """Return the arrays of timm's `VisionTransformer`; see `Format.find`."""
    if len(shapes.get("patch_embed.proj.weight", ())) != 4 or not any(
        name.startswith("blocks.0.") for name in shapes
    ):
        return None
    if "dist_token" in shapes or "head_dist.weight" in shapes:
        raise ValueError(
            "`path` must be a Vision Transformer without DeiT's distillation token and its second "
            "head. Received: arrays called 'dist_token' or 'head_dist'"
        )
    return Naming.of(shapes)


def describe_timm(shape_of, config, num_heads):
    """Return the options of a timm model, from its arrays and `config.json`."""
    check_project(config, ("architecture", "model_args", "num_features"), "timm")
    arguments = config.get("model_args") or {}
    architecture = config.get("architecture") or ""
    _check(architecture, arguments)
    width, channels, *patch_size = shape_of("patch_embedding/projection/kernel")
    query_norm = shape_of("block_0/attention/query_norm/gamma")
    configured = width // query_norm[0] if query_norm else arguments.get("num_heads")
    configured = configured or HEADS.get(architecture)
    registers = shape_of("register_tokens/tokens")
    options = {
        "patch_size": tuple(patch_size),
        "embedding_dim": width,
        "depth": block_depth(shape_of),
        "num_heads": torch_heads(width, configured, num_heads),
        "mlp_dim": output_size(shape_of, "block_0/mlp/dense_0", axis=0),
        "num_classes": output_size(shape_of, "head", axis=0) or 0,
        "image_channels": channels,
        "pooling": _pooling(shape_of, config, arguments),
        "activation": _activation(config, arguments),
        "class_token": shape_of("class_token/token") is not None,
        "num_registers": registers[1] if registers else 0,
        "qkv_bias": shape_of("block_0/attention/query/bias") is not None,
        "patch_bias": shape_of("patch_embedding/projection/bias") is not None,
        "qk_norm": query_norm is not None,
        # The file has the factors, but not their initial value.
        "layer_scale": arguments.get("init_values") or 1e-5
        if shape_of("block_0/layer_scale_1/gamma")
        else None,
        "pre_norm": shape_of("pre_norm/gamma") is not None,
        "fc_norm": shape_of("fc_norm/gamma") is not None,
        # CLIP towers have PyTorch's default, timm's other ViTs have 1e-6.
        "epsilon": 1e-5 if "clip" in architecture else 1e-6,
    }
    names = {
        "embed_dim": "embedding_dim",
        "depth": "depth",
        "patch_size": "patch_size",
        "in_chans": "image_channels",
        "class_token": "class_token",
        "reg_tokens": "num_registers",
        "qkv_bias": "qkv_bias",
        "qk_norm": "qk_norm",
    }
    check_recorded(arguments, names, options)
    # Configurations of backbones have 0 classes, but the file may have a head.
    classes = {"num_classes": config.get("num_classes") or None}
    names = {"num_features": "embedding_dim", "num_classes": "num_classes"}
    check_recorded({**config, **classes}, names, options)
    return options


def _check(architecture, arguments):
    """Raise an error if timm computes another function with the same arrays."""
    others = {name: arguments[name] for name in OTHER_FUNCTIONS if arguments.get(name)}
    if any(part in architecture for part in OTHER_ARCHITECTURES):
        others["architecture"] = architecture
    if others:
        raise ValueError(
            "The config.json of `path` must describe a ViT with timm's default layers. Received: "
            + ", ".join(f"{name}={value!r}" for name, value in others.items())
        )


def _pooling(shape_of, config, arguments):
    has_probe = shape_of("pooling/probe") is not None
    has_fc_norm = shape_of("fc_norm/gamma") is not None
    has_class_token = shape_of("class_token/token") is not None
    has_prefix = has_class_token or shape_of("register_tokens/tokens") is not None
    pool = arguments.get("global_pool", config.get("global_pool"))
    if pool is None:
        pool = "map" if has_probe else "avg" if has_fc_norm or not has_class_token else "token"
    includes_prefix = bool(arguments.get("pool_include_prefix")) and has_prefix
    known = ("token", "avg", "map")
    if pool not in known or includes_prefix or (has_fc_norm and pool != "avg"):
        raise ValueError(
            f"`global_pool` of the file's config.json must be one of {known}, and 'avg' if there "
            "is an `fc_norm`; it must not include class and register tokens. Received: "
            f"global_pool={pool!r}, pool_include_prefix={includes_prefix}, fc_norm={has_fc_norm}"
        )
    return "gap" if pool == "avg" else pool


def _activation(config, arguments):
    architecture = config.get("architecture") or ""
    name = arguments.get("act_layer")
    if name is None and "quickgelu" in architecture:
        name = "quick_gelu"
    if name is None and "siglip" in architecture:
        is_tanh = any(part in architecture for part in TANH_SIGLIP)
        name = "gelu_tanh" if is_tanh else "gelu"
    name = name or "gelu"
    if name not in ACTIVATIONS:
        raise ValueError(
            f"`act_layer` of the file's config.json must be one of {', '.join(ACTIVATIONS)}. "
            f"Received: act_layer={name!r}"
        )
    return ACTIVATIONS[name]


def _configure(options, arrays, class_names, normalization, resizing):
    """Return the `config.json` from which `timm.create_model("local-dir:...")` builds the model."""
    width, mlp_dim = options["embedding_dim"], options["mlp_dim"]
    height, width_in_pixels = options["image_size"]
    pool = {"token": "token", "gap": "avg", "map": "map", None: ""}[options["pooling"]]
    tokens = options["class_token"] + options["num_registers"]
    patches = (height // options["patch_size"][0]) * (width_in_pixels // options["patch_size"][1])
    arguments = {
        "img_size": [height, width_in_pixels],
        "patch_size": list(options["patch_size"]),
        "in_chans": options["image_channels"],
        "embed_dim": width,
        "depth": options["depth"],
        "num_heads": options["num_heads"],
        # timm computes `int(embed_dim * mlp_ratio)`, which could be 1 too small.
        "mlp_ratio": mlp_dim / width
        if int(mlp_dim / width * width) == mlp_dim
        else (mlp_dim + 0.5) / width,
        "qkv_bias": options["qkv_bias"],
        "qk_norm": options["qk_norm"],
        "init_values": options["layer_scale"],
        "class_token": options["class_token"],
        "no_embed_class": tokens > 0 and arrays["pos_embed"].shape[1] == patches,
        "reg_tokens": options["num_registers"],
        "pre_norm": options["pre_norm"],
        "fc_norm": options["fc_norm"],
        "act_layer": options["activation"],
        "global_pool": pool,
    }
    config = {
        # `model_args` replace everything in this architecture except epsilon, 1e-5 in CLIP towers.
        "architecture": "vit_base_patch16_clip_224"
        if options["epsilon"] == 1e-5
        else "vit_base_patch16_224",
        "num_classes": options["num_classes"],
        "num_features": width,
        "global_pool": pool,
        "model_args": arguments,
        "pretrained_cfg": {
            "num_classes": options["num_classes"],
            "input_size": [options["image_channels"], height, width_in_pixels],
            "fixed_input_size": True,
            "interpolation": resizing.interpolation,
            "crop_pct": resizing.crop_share,
            "crop_mode": "center" if resizing.keeps_aspect_ratio else "squash",
            "mean": per_channel(normalization[0]),
            "std": per_channel(normalization[1]),
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
    }
    if class_names:
        config["label_names"] = class_names
    return {"config.json": config}


def _prefix_rows(num_tokens, shape_of):
    """Return the possible numbers of positions for class and register tokens, the likeliest first.

    DeiT III and models with registers have no positions for these tokens. Models with neither
    LayerScale nor registers have one position per token.
    """
    has_none = num_tokens > 1 or shape_of("block_0/layer_scale_1/gamma") is not None
    return (0, num_tokens) if has_none else (num_tokens, 0)


def _configured_size(config):
    size = (config.get("model_args") or {}).get("img_size")
    return size or (config.get("pretrained_cfg") or {}).get("input_size", ())[1:] or None


TIMM = Format(
    "timm",
    TIMM_ROWS,
    "`timm`: `.safetensors`",
    ".safetensors",
    find_timm,
    describe_timm,
    prefix_rows=_prefix_rows,
    configured_size=_configured_size,
    class_names=lambda config: in_order(config.get("label_names")),
    interpolation="bicubic",
    config_options=("pooling", "num_heads", "activation", "epsilon"),
    config_files=("config.json",),
    configure=_configure,
    has_patch_bias=lambda options: not options.get("pre_norm"),
    store_positions=without_zero_rows,
)
