"""The layouts of Meta's repositories of DINO, DINOv2, DINOv3, MAE, MSN and DeiT, for reading only.

Their names of arrays are nearly those of timm. The functions `find` replace the other names.
"""

import dataclasses
import functools

from keras_vit.checkpoints.configuration import IMAGENET
from keras_vit.checkpoints.formats.timm import BLOCK, DINO_HEAD, PRETRAINING, TIMM
from keras_vit.checkpoints.formats.timm_eva import EVA_ROWS, TIMM_EVA
from keras_vit.checkpoints.formats.torchvision import TORCHVISION
from keras_vit.checkpoints.weight_map import Naming, Row, renamer
from keras_vit.core.image_spec import ImageSpec

RENAME = renamer(
    [
        # With `block_chunks`, DINOv2 has the number of the chunk before that of the block.
        (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),
        ("^register_tokens$", "reg_token"),
        (r"\.mlp\.w12\.", ".mlp.fc1."),
        (r"\.mlp\.w3\.", ".mlp.fc2."),
        # The factors of LayerScale in DeiT III.
        (r"\.gamma_([12])$", r".ls\1.gamma"),
    ]
)
RENAME_DINOV3 = renamer(
    [
        ("^storage_tokens$", "reg_token"),
        (r"\.ls([12])\.gamma$", r".gamma_\1"),
        (r"\.mlp\.w1\.", ".mlp.fc1_g."),
        (r"\.mlp\.w2\.", ".mlp.fc1_x."),
        (r"\.mlp\.w3\.", ".mlp.fc2."),
    ]
)
# The keys have no bias: a mask sets this third of the packed bias to zero.
BIASES = tuple(f"block_{{i}}/attention/{name}/bias" for name in ("query", "value"))
DINOV3_ROWS = (
    *(row for row in EVA_ROWS if row.target not in BIASES),
    Row(f"{BLOCK}.attn.qkv.bias", BIASES, "split_without_key"),
)
# Norm of the class token in local crops, which is only used in training.
LOCAL_NORM = "local_cls_norm.weight"


def _find(shapes):
    has_dino_head = any(name.startswith(DINO_HEAD) for name in shapes)
    naming = Naming.of(shapes, RENAME, PRETRAINING + r"|head\." * has_dino_head)
    markers = {"patch_embed.proj.weight", "pos_embed", "blocks.0.norm1.weight"}
    return naming if markers <= naming.shapes.keys() else None


def _prefix_rows(num_tokens, shape_of):
    """Return the possible numbers of positions before those of the patches.

    Models with registers have a position for the class token only.
    """
    has_registers = shape_of("register_tokens/tokens") is not None
    return (1,) if has_registers else TIMM.prefix_rows(num_tokens, shape_of)


def _find_dinov3(has_local_norm, shapes):
    ignored = rf"{PRETRAINING}|rope_embed\.|.*\.bias_mask$|local_cls_norm\."
    naming = Naming.of(shapes, RENAME_DINOV3, ignored)
    bias = "blocks.0.attn.qkv.bias"
    is_masked = bias not in shapes or f"{bias}_mask" in shapes
    is_dinov3 = {"reg_token", "blocks.0.gamma_1"} <= naming.shapes.keys() and is_masked
    return naming if is_dinov3 and has_local_norm == (LOCAL_NORM in shapes) else None


def _describe_dinov3(shape_of, config, num_heads):
    return TIMM_EVA.describe(shape_of, config, num_heads).replace(pooling="token")


# Only the number of heads varies between models with the same arrays.
COMMON = {"family": "meta", "config_options": ("num_heads",)}
META = TIMM.read_only(
    "meta",
    _find,
    ("DINO", "DINOv2", "MAE", "MSN", "iBOT", "DeiT", "DeiT III"),
    image_spec=dataclasses.replace(TORCHVISION.image_spec, interpolation="bicubic"),
    prefix_rows=_prefix_rows,
    **COMMON,
)
META_DINOV3 = TIMM_EVA.read_only(
    "meta_dinov3",
    functools.partial(_find_dinov3, False),
    ("DINOv3",),
    rows=DINOV3_ROWS,
    describe=_describe_dinov3,
    image_spec=ImageSpec(antialias=True, mean=IMAGENET[0], deviation=IMAGENET[1]),
    **COMMON,
)
# DINOv3's weights for satellite images, which have another mean, and the 7B model for photos.
META_DINOV3_UNTIED = META_DINOV3.read_only(
    "meta_dinov3_untied",
    functools.partial(_find_dinov3, True),
    ("DINOv3 7B", "DINOv3 for satellite images"),
)
