"""The layouts of the image towers of open_clip: OpenAI's CLIP, and models of timm."""

import dataclasses

from keras_vit.checkpoints.architecture import (
    check_project,
    check_recorded,
    output_size,
    torch_options,
)
from keras_vit.checkpoints.configuration import OPEN_CLIP_CONFIG, recorded_images
from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.formats.timm import TIMM, TIMM_ROWS, describe_timm, find_timm
from keras_vit.checkpoints.formats.transformers.common import check_setting
from keras_vit.checkpoints.weight_map import POSITIONS, Naming, Row, packed, torch_layer, torch_norm
from keras_vit.models.options import VitOptions

TOWER = "visual."
TRUNK = f"{TOWER}trunk."
BLOCK = f"{TOWER}transformer.resblocks.{{i}}"
PATCHES, CLASS_TOKEN = f"{TOWER}conv1.weight", f"{TOWER}class_embedding"

OPEN_CLIP_ROWS = (
    Row(PATCHES, "patch_embedding/projection/kernel", "convolution"),
    Row(CLASS_TOKEN, "class_token/token", "flat_token"),
    Row(f"{TOWER}positional_embedding", POSITIONS, "flat_positions"),
    *torch_norm(f"{TOWER}ln_pre.", "pre_norm"),
    *torch_norm(f"{BLOCK}.ln_1.", "block_{i}/layer_norm_1"),
    *packed(f"{BLOCK}.attn.in_proj_", "block_{i}/attention"),
    *torch_layer(f"{BLOCK}.attn.out_proj.", "block_{i}/attention/output"),
    Row(f"{BLOCK}.ls_1.gamma", "block_{i}/layer_scale_1/gamma"),
    *torch_norm(f"{BLOCK}.ln_2.", "block_{i}/layer_norm_2"),
    *torch_layer(f"{BLOCK}.mlp.c_fc.", "block_{i}/mlp/dense_0"),
    *torch_layer(f"{BLOCK}.mlp.c_proj.", "block_{i}/mlp/dense_1"),
    Row(f"{BLOCK}.ls_2.gamma", "block_{i}/layer_scale_2/gamma"),
    *torch_norm(f"{TOWER}ln_post.", "encoder_norm"),
    # In models that normalize the mean of the patches.
    *torch_norm(f"{TOWER}ln_post.", "fc_norm"),
    Row(f"{TOWER}proj", "projection/kernel"),
)


def _find(shapes):
    """Return the `Naming` of a file of both towers, or of the image tower alone, or `None`."""
    prefix = "" if PATCHES in shapes else TOWER
    if not {PATCHES, CLASS_TOKEN} <= {prefix + name for name in shapes}:
        return None
    return Naming.of(shapes, lambda name: prefix + name, ignored=f"(?!{TOWER})")


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
    has_scale = shape_of("block_0/layer_scale_1/gamma") is not None
    options = VitOptions(
        **torch_options(shape_of, heads, num_heads),
        image_size=None,
        pooling="gap" if is_mean else "token",
        class_token=True,
        patch_bias=False,
        pre_norm=shape_of("pre_norm/gamma") is not None,
        fc_norm=is_mean and bool(tower.get("final_ln_after_pool")),
        projection_dim=output_size(shape_of, "projection"),
        # The file contains the trained factors, but not always their initial value.
        layer_scale=tower.get("ls_init_value") or 1e-5 if has_scale else None,
        # Without a configuration, the weights are assumed to be OpenAI's.
        activation="quick_gelu" if model.get("quick_gelu", not config) else "gelu",
        epsilon=1e-5,
    )
    names = {"width": "embedding_dim", "layers": "depth", "patch_size": "patch_size"}
    check_recorded(tower, names, options)
    check_recorded(model, {"embed_dim": "projection_dim"}, options)
    return options


def _find_timm_tower(shapes):
    """Return the `Naming` of a model whose image tower is a model of timm, or `None`."""
    trunk = {name: shape for name, shape in shapes.items() if name.startswith(TRUNK)}
    naming = find_timm({name.removeprefix(TRUNK): shape for name, shape in trunk.items()})
    if naming is None:
        return None
    naming = naming.with_prefix(TRUNK, [name for name in shapes if not name.startswith(TOWER)])
    for name in shapes.keys() - trunk.keys() - {*naming.ignored}:
        naming.add(name, name, shapes[name])
    return naming


def _describe_timm_tower(shape_of, config, num_heads):
    check_project(config, ("model_cfg",), "open_clip")
    _, tower = _settings(config)
    names = {"architecture": "timm_model_name", "global_pool": "timm_pool"}
    defaults = {"timm_model_name": "", "timm_pool": "avg"}
    settings = {ours: (defaults | tower)[name] or None for ours, name in names.items()}
    options = describe_timm(shape_of, settings if config else {}, num_heads)
    return options.replace(projection_dim=output_size(shape_of, "projection", axis=0))


SHARED = {
    "family": "open_clip",
    "configured_size": lambda config: _settings(config)[1].get("image_size"),
    "image_spec": recorded_images({"model_cfg": {}}, {}, None),
    "config_files": (OPEN_CLIP_CONFIG,),
    "has_normalizations": True,
    "interpolation": "bicubic",
}
OPEN_CLIP = Format(
    "open_clip",
    OPEN_CLIP_ROWS,
    "`open_clip`: `.safetensors` of open_clip and of OpenAI's CLIP",
    find=_find,
    describe=_describe,
    read_only_models=("ViT", "OpenAI's CLIP"),
    config_options=("num_heads", "activation"),
    **SHARED,
)
# timm's projection without a bias follows its pooling.
OPEN_CLIP_TIMM = dataclasses.replace(
    TIMM,
    name="open_clip_timm",
    rows=(*TIMM_ROWS, Row(f"{TOWER}head.proj.weight", "projection/kernel", "dense")),
    title=None,
    suffix=None,
    find=_find_timm_tower,
    describe=_describe_timm_tower,
    models=(),
    read_only_models=("models whose image tower is a ViT of timm, such as SigLIP",),
    **SHARED,
)
