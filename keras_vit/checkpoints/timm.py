"""timm's `VisionTransformer`: `.safetensors` with a `config.json` beside."""

from keras_vit.checkpoints.architecture import block_depth, first_of, torch_heads
from keras_vit.checkpoints.weight_map import Format, Naming, Row, Source, norm, two

WEIGHT = ("weight", "bias")
BLOCK = "blocks.{i}"


def _dense(source, target):
    return two(source, target, "dense", names=WEIGHT)


TIMM_ROWS = (
    *two("patch_embed.proj.", "patch_embedding/projection", "convolution", names=WEIGHT),
    Row("cls_token", "class_token/token"),
    Row("reg_token", "register_tokens/tokens"),
    Row("pos_embed", "position_embedding/embedding", "positions"),
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

# Its names of activations, for ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "quickgelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
}
# SigLIP models that timm builds with the tanh GELU (`timm/models/vision_transformer.py`); the
# others were trained with it too, and timm computes the erf.
TANH_SIGLIP = ("patch32_siglip", "patch16_siglip_512", "patch16_siglip_gap_512")
TANH_SIGLIP_SIZES = ("so400m_patch16", "giantopt")


def find_timm(shapes):
    """The arrays of timm's `VisionTransformer`, or `None` for a file of another kind."""
    if len(shapes.get("patch_embed.proj.weight", ())) != 4 or not any(
        name.startswith("blocks.0.") for name in shapes
    ):
        return None
    if "dist_token" in shapes or "head_dist.weight" in shapes:
        raise ValueError(
            "`path` must be a Vision Transformer without DeiT's distillation token, which has a "
            "second head. Received: arrays called 'dist_token' or 'head_dist'"
        )
    naming = Naming({}, {}, [])
    for name, shape in shapes.items():
        naming.add(name, Source(name), shape)
    return naming


def describe_timm(shape_of, config, num_heads):
    """The options of a timm model, from its arrays and what its configuration adds."""
    arguments = config.get("model_args") or {}
    width, channels, *patch_size = shape_of("patch_embedding/projection/kernel")
    depth = block_depth(shape_of)
    mlp_dim = first_of(shape_of, "block_0/mlp/dense_0/bias", "block_0/mlp/dense_0/kernel")
    query_norm = shape_of("block_0/attention/query_norm/gamma")
    configured = width // query_norm[0] if query_norm else arguments.get("num_heads")
    registers = shape_of("register_tokens/tokens")
    head = first_of(shape_of, "head/bias", "head/kernel")
    return {
        "patch_size": tuple(patch_size),
        "embedding_dim": width,
        "depth": depth,
        "num_heads": torch_heads(width, depth, configured, num_heads),
        "mlp_dim": mlp_dim[0] if mlp_dim else None,
        "num_classes": head[0] if head else 0,
        "image_channels": channels,
        "pooling": _pooling(shape_of, config, arguments),
        "activation": _activation(config, arguments),
        "class_token": shape_of("class_token/token") is not None,
        "num_registers": registers[1] if registers else 0,
        "qkv_bias": shape_of("block_0/attention/query/bias") is not None,
        "qk_norm": query_norm is not None,
        # The factors are in the file; what they were at the start is not.
        "layer_scale": arguments.get("init_values") or 1e-5
        if shape_of("block_0/layer_scale_1/gamma")
        else None,
        "pre_norm": shape_of("pre_norm/gamma") is not None,
        "fc_norm": shape_of("fc_norm/gamma") is not None,
        # All CLIP towers have PyTorch's own, timm's other ViTs 1e-6.
        "epsilon": 1e-5 if "clip" in config.get("architecture", "") else 1e-6,
    }


def _pooling(shape_of, config, arguments):
    if shape_of("pooling/probe") is not None:
        return "map"
    if shape_of("fc_norm/gamma") is not None or shape_of("class_token/token") is None:
        return "gap"
    told = arguments.get("global_pool", config.get("global_pool", "token"))
    if told not in ("token", "avg"):
        raise ValueError(
            f"the pooling of the file's config.json must be 'token', 'avg' or 'map'. "
            f"Received: global_pool={told!r}"
        )
    return "gap" if told == "avg" else "token"


def _activation(config, arguments):
    architecture = config.get("architecture", "")
    told = arguments.get("act_layer")
    if told is None and "quickgelu" in architecture:
        told = "quick_gelu"
    if told is None and "siglip" in architecture:
        is_tanh = any(part in architecture for part in (*TANH_SIGLIP, *TANH_SIGLIP_SIZES))
        told = "gelu_tanh" if is_tanh else "gelu"
    told = told or "gelu"
    if told not in ACTIVATIONS:
        raise ValueError(
            f"`act_layer` of the file's config.json must be one of {', '.join(ACTIVATIONS)}. "
            f"Received: act_layer={told!r}"
        )
    return ACTIVATIONS[told]


def configuration(options, arrays):
    """The `config.json` from which timm builds the model (`timm.create_model("local-dir:...")`).

    Args:
        options: of `vision_transformer`.
        arrays: of the file, by name.

    Returns:
        The contents of the files beside the weights, by file name.
    """
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
        # timm cuts the product off; half a unit more survives the division's rounding.
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
        # Any ViT will do: the arguments say all that makes it another. Where the epsilon is CLIP's,
        # it has to be one of its towers.
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
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "mean": [0.5, 0.5, 0.5],
            "std": [0.5, 0.5, 0.5],
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
    }
    return {"config.json": config}


TIMM = Format(
    "timm",
    TIMM_ROWS,
    find_timm,
    describe_timm,
    # Registers have positions in no published file: 9 rows are rather 3 x 3 patches than 2 x 2
    # behind a class token and 4 registers.
    prefix_rows=lambda num_tokens: (0, num_tokens) if num_tokens > 1 else (num_tokens, 0),
    interpolation="bicubic",
)
