"""The `config.json` from which timm builds a model."""

import math

from keras_vit.checkpoints.architecture import check_project, check_recorded, grid_of, per_channel

GLOBAL_POOLS = {"token": "token", "gap": "avg", "map": "map"}


def arguments_of(options):
    """Return the `model_args` that all classes of timm have; others are added to them."""
    width, mlp_dim = options.embedding_dim, options.mlp_dim
    # The packed gate is a part of the hidden layer.
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
    """Return a ratio from which timm computes the hidden width as `int(width * ratio)`."""
    # The product could be a little too small.
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
            "mean": per_channel(image_spec.mean),
            "std": per_channel(image_spec.deviation),
            "first_conv": "patch_embed.proj",
            "classifier": ["head", "head_dist"] if options.distillation_token else "head",
        },
    }
    if class_names:
        config["label_names"] = class_names
    return config


def model_arguments(config):
    """Return the `model_args` of a `config.json`, checked to be one of timm."""
    check_project(config, ("architecture", "model_args", "num_features"), "timm")
    return config.get("model_args") or {}


def check_others(others, what):
    """Raise an error for `others`, settings with which timm computes another function."""
    if others:
        raise ValueError(
            f"The config.json of `path` must describe a ViT {what}. Received: "
            + ", ".join(f"{name}={value!r}" for name, value in others.items())
        )


def check_arguments(config, options, names):
    """Raise an error if a `config.json` does not fit the arrays; see `check_recorded`.

    `names` are those of arguments that not all classes have.
    """
    common = {
        "embed_dim": "embedding_dim",
        "depth": "depth",
        "patch_size": "patch_size",
        "in_chans": "image_channels",
        "qkv_bias": "qkv_bias",
    }
    check_recorded(config.get("model_args") or {}, common | names, options)
    # Configurations of backbones have 0 classes, but the file may have a head.
    classes = {"num_classes": config.get("num_classes") or None}
    names = {"num_features": "embedding_dim", "num_classes": "num_classes"}
    check_recorded({**config, **classes}, names, options)


def configured_size(config):
    """Return the image size that a `config.json` records, or `None`."""
    size = (config.get("model_args") or {}).get("img_size")
    return size or (config.get("pretrained_cfg") or {}).get("input_size", ())[1:] or None


def refused_pooling(options):
    """List the pooling if timm does not have it; see `Format.refused`."""
    return [] if options.pooling in GLOBAL_POOLS else ["pooling"]


def configure(options, arrays, *facts):
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
    # `model_args` replace everything in this architecture except the class of the model, the packed
    # SwiGLU, and epsilon, which is 1e-5 in CLIP towers.
    architecture = "vit_base_patch16_224"
    if options.distillation_token:
        architecture = "deit_base_distilled_patch16_224"
    elif options.gated_mlp:
        architecture = "vit_giant_patch14_dinov2"
    elif options.epsilon == 1e-5:
        architecture = "vit_base_patch16_clip_224"
    return {"config.json": config_of(architecture, arguments, options, *facts)}
