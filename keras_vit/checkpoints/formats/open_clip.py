"""The layouts of the image towers of open_clip: OpenAI's CLIP, and models of timm."""

import re

from keras_vit.checkpoints.architecture import (
    check_project,
    check_recorded,
    check_setting,
    initial_layer_scale,
    output_size,
    torch_options,
)
from keras_vit.checkpoints.configuration import OPEN_CLIP_CONFIG, OPENAI
from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.formats.timm import TIMM, TIMM_ROWS, describe_timm, find_timm
from keras_vit.checkpoints.weight_map import (
    POSITIONS,
    Naming,
    Row,
    finder,
    packed,
    torch_layer,
    torch_norm,
)
from keras_vit.core.image_spec import ImageSpec
from keras_vit.models.options import VitOptions

TRUNK, BLOCK = "trunk.", "transformer.resblocks.{i}"
PATCHES, CLASS_TOKEN = "conv1.weight", "class_embedding"

# Names without the prefix `visual.` of the image tower.
OPEN_CLIP_ROWS = (
    Row(PATCHES, "patch_embedding/projection/kernel", "convolution"),
    Row(CLASS_TOKEN, "class_token/token", "flat_token"),
    Row("positional_embedding", POSITIONS, "flat_positions"),
    *torch_norm("ln_pre.", "pre_norm"),
    *torch_norm(f"{BLOCK}.ln_1.", "block_{i}/layer_norm_1"),
    *packed(f"{BLOCK}.attn.in_proj_", "block_{i}/attention"),
    *torch_layer(f"{BLOCK}.attn.out_proj.", "block_{i}/attention/output"),
    Row(f"{BLOCK}.ls_1.gamma", "block_{i}/layer_scale_1/gamma"),
    *torch_norm(f"{BLOCK}.ln_2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{BLOCK}.mlp.c_fc.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{BLOCK}.mlp.c_proj.", "block_{i}/mlp/dense_1"),
    Row(f"{BLOCK}.ls_2.gamma", "block_{i}/layer_scale_2/gamma"),
    *torch_norm("ln_post.", "encoder_norm"),
    # In models that normalize the mean of the patches.
    *torch_norm("ln_post.", "fc_norm"),
    Row("proj", "projection/kernel"),
)


def _settings(config):
    """Return the settings of the model, and of its image tower."""
    model = config.get("model_cfg") or {}
    return model, model.get("vision_cfg") or {}


def _describe(shape_of, config, num_heads):
    check_project(config, ("model_cfg",), "open_clip")
    model, tower = _settings(config)
    # Other values would change the outputs, but not the arrays.
    check_setting(tower, "pool_type", "tok", "avg")
    for name in ("act_kwargs", "norm_kwargs"):
        check_setting(tower, name, None)
    width = shape_of("patch_embedding/projection/kernel")[0]
    heads = width // tower.get("head_width", 64) if config else None
    is_mean = tower.get("pool_type") == "avg"
    options = VitOptions(
        **torch_options(shape_of, heads, num_heads),
        image_size=None,
        pooling="gap" if is_mean else "token",
        class_token=True,
        patch_bias=False,
        pre_norm=shape_of("pre_norm/gamma") is not None,
        fc_norm=is_mean and bool(tower.get("final_ln_after_pool")),
        projection_dim=output_size(shape_of, "projection"),
        layer_scale=initial_layer_scale(shape_of, tower.get("ls_init_value")),
        # Without a configuration, the weights are assumed to be OpenAI's.
        activation="quick_gelu" if model.get("quick_gelu", not config) else "gelu",
        epsilon=1e-5,
    )
    names = {"width": "embedding_dim", "layers": "depth", "patch_size": "patch_size"}
    check_recorded(tower, names, options)
    check_recorded(model, {"embed_dim": "projection_dim"}, options)
    return options


def _find_timm_tower(shapes):
    """Return the `Naming` of a model of timm and its projection, or `None`."""
    names = [name for name in shapes if name.startswith(TRUNK)]
    if find_timm({name.removeprefix(TRUNK): shapes[name] for name in names}) is None:
        return None
    # The head of timm would be a projection. It keeps its name, which is an error.
    return Naming.of(shapes, lambda name: re.sub(r"^trunk\.(?!head\.)", "", name))


def _describe_timm_tower(shape_of, config, num_heads):
    check_project(config, ("model_cfg",), "open_clip")
    _, tower = _settings(config)
    settings = {
        "architecture": tower.get("timm_model_name"),
        "global_pool": tower.get("timm_pool", "avg") or None,
    }
    options = describe_timm(shape_of, settings if config else {}, num_heads)
    return options.replace(projection_dim=output_size(shape_of, "projection", axis=0))


SHARED = {
    "family": "open_clip",
    "configured_size": lambda config: _settings(config)[1].get("image_size"),
    "image_spec": ImageSpec(
        interpolation="bicubic",
        antialias=True,
        keeps_aspect_ratio=True,
        rounds_offset=True,
        mean=OPENAI[0],
        deviation=OPENAI[1],
    ),
    "config_files": (OPEN_CLIP_CONFIG,),
    "has_normalizations": True,
    "interpolation": "bicubic",
}
OPEN_CLIP = Format(
    "open_clip",
    OPEN_CLIP_ROWS,
    "`open_clip`: `.safetensors` of open_clip and of OpenAI's CLIP, all under `visual.`",
    find=finder([PATCHES, CLASS_TOKEN], ("",)),
    describe=_describe,
    read_only_models=("ViT", "OpenAI's CLIP"),
    config_options=("num_heads", "activation"),
    **SHARED,
)
# open_clip applies `head.proj`, a linear layer without a bias, to the pooled output of the model.
OPEN_CLIP_TIMM = TIMM.read_only(
    "open_clip_timm",
    _find_timm_tower,
    ("models whose image tower is a ViT of timm, such as SigLIP",),
    rows=(*TIMM_ROWS, Row("head.proj.weight", "projection/kernel", "dense")),
    describe=_describe_timm_tower,
    **SHARED,
)
