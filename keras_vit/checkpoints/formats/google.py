"""Google's `.npz` files: vit_jax as released, and big_vision.

Both are Flax's parameters, flattened. The encoder's layers were numbered by their place in a block
when the files of vit_jax were released, and are by their class in today's code. All spellings are
brought to big_vision's first, as its `fix_old_checkpoints` does (`big_vision/models/vit.py`), and
then to those of vit_jax's released files.
"""

import re

from keras_vit.checkpoints.architecture import block_depth, first_of
from keras_vit.checkpoints.formats.flax_resnet import describe_resnet, describe_stages, resnet_rows
from keras_vit.checkpoints.weight_map import Format, Naming, Row, Source, norm, two

# Where the model is in what a file holds. Parameters of big_vision with their optimizer are in
# `params` or `opt/target`; an image tower is beside a text tower.
PREFIXES = ("params/img/", "params/", "opt/target/img/", "opt/target/", "img/", "")
# What else is there: optimizer state and counters; a text tower, and the temperature and bias of
# the contrastive loss.
NOT_THE_MODEL = re.compile(
    r"(opt|opt_state|extra|state|step|chrono)(/|$)|(params/|opt/target/)?(txt/|t$|b$)"
)

RENAMED = [
    (r"^Transformer/posembed_input/pos_embedding$", "pos_embedding"),
    (r"^Transformer/pos_embedding$", "pos_embedding"),
    (r"^(?=(probe$|(MlpBlock|MultiHeadDotProductAttention|LayerNorm)_0/))", "MAPHead_0/"),
    (r"^(Transformer/encoderblock\w*/)LayerNorm_2/", r"\1LayerNorm_1/"),
    (r"^(Transformer/encoderblock\w*/)MultiHeadDotProductAttention_1/",
     r"\1MultiHeadDotProductAttention_0/"),
    (r"^(Transformer/encoderblock\w*/)MlpBlock_3/", r"\1MlpBlock_0/"),
]  # fmt: skip


def _attention(source, target):
    pairs = (("query", "query"), ("key", "key"), ("value", "value"), ("out", "output"))
    return [row for s, t in pairs for row in two(f"{source}/{s}/", f"{target}/{t}")]


def _mlp(source, target):
    return [row for i in (0, 1) for row in two(f"{source}/Dense_{i}/", f"{target}/dense_{i}")]


def _rows(positions, attention, norm_2, mlp, group_norm):
    block = "Transformer/encoderblock_{i}"
    return (
        *resnet_rows(group_norm),
        *two("embedding/", "patch_embedding/projection"),
        Row("cls", "class_token/token"),
        Row(positions, "position_embedding/embedding", "positions"),
        *norm(f"{block}/LayerNorm_0/", "block_{i}/layer_norm_1"),
        *_attention(f"{block}/{attention}", "block_{i}/attention"),
        *norm(f"{block}/{norm_2}/", "block_{i}/layer_norm_2"),
        *_mlp(f"{block}/{mlp}", "block_{i}/mlp"),
        *norm("Transformer/encoder_norm/", "encoder_norm"),
        *two("pre_logits/", "pre_logits"),
        *two("head/", "head"),
    )


GOOGLE_ROWS = _rows(
    "Transformer/posembed_input/pos_embedding",
    "MultiHeadDotProductAttention_1",
    "LayerNorm_2",
    "MlpBlock_3",
    "group_norm",
)
BIG_VISION_ROWS = (
    *_rows(
        "pos_embedding",
        "MultiHeadDotProductAttention_0",
        "LayerNorm_1",
        "MlpBlock_0",
        "flat_group_norm",
    ),
    Row("MAPHead_0/probe", "pooling/probe"),
    *_attention("MAPHead_0/MultiHeadDotProductAttention_0", "pooling/attention"),
    *norm("MAPHead_0/LayerNorm_0/", "pooling/layer_norm"),
    *_mlp("MAPHead_0/MlpBlock_0", "pooling/mlp"),
)
# The last rows of big_vision's map have no counterpart.
GOOGLE_NAMES = {
    new.source: old.source for new, old in zip(BIG_VISION_ROWS, GOOGLE_ROWS, strict=False)
}


def find_big_vision(shapes):
    """The arrays of a Flax ViT or of a ResNet of `bit.py` under big_vision's names.

    `None` for a file of another kind.
    """
    first = ("embedding/kernel", "conv_root/kernel")
    prefixes = (p for p in PREFIXES if any(len(shapes.get(f"{p}{x}", ())) == 4 for x in first))
    prefix = next(prefixes, None)
    if prefix is None:
        return None
    naming = Naming({}, {}, [])
    for name, shape in shapes.items():
        if name.startswith(prefix):
            _add(naming, _today(name.removeprefix(prefix)), name, shape)
        elif NOT_THE_MODEL.match(name):
            naming.ignored.append(name)
        else:
            _add(naming, name, name, shape)
    return naming


def _today(name):
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def _add(naming, name, stored_name, shape):
    stacked = "Transformer/encoderblock/"
    if not name.startswith(stacked) or not shape:
        naming.add(name, Source(stored_name), shape)
        return
    # Blocks that were scanned over are stacked along a first axis.
    for index in range(shape[0]):
        one = f"Transformer/encoderblock_{index}/{name.removeprefix(stacked)}"
        naming.add(one, Source(stored_name, index), shape[1:])


def find_google(shapes):
    """The arrays of a ViT of vit_jax under its released names, or `None` for another kind."""
    naming = find_big_vision(shapes)
    is_vit_jax = any(name.endswith("posembed_input/pos_embedding") for name in shapes)
    if naming is None or not is_vit_jax or "MAPHead_0/probe" in naming.shapes:
        return None
    return naming.renamed(_released)


def _released(name):
    block = re.match(r"Transformer/encoderblock_(\d+)/", name)
    if block is None:
        return GOOGLE_NAMES.get(name, name)
    template = name.replace(block[0], "Transformer/encoderblock_{i}/", 1)
    return GOOGLE_NAMES.get(template, template).format(i=block[1])


def describe_flax(shape_of, config, num_heads):
    """The options of a Flax ViT; all but the GELU's form is in the arrays' shapes.

    Those of a ResNet if there are no patches.
    """
    root_conv = shape_of("root_conv/kernel")
    if root_conv and shape_of("patch_embedding/projection/kernel") is None:
        return describe_resnet(shape_of, config, num_heads)
    *patch_size, channels, width = shape_of("patch_embedding/projection/kernel")
    has_class_token = shape_of("class_token/token") is not None
    is_map = shape_of("pooling/probe") is not None
    heads = first_of(
        shape_of, *(f"block_0/attention/{x}/kernel" for x in ("query", "key", "value"))
    )
    pre_logits = first_of(shape_of, "pre_logits/kernel", "pre_logits/bias")
    mlp_dim = first_of(shape_of, "block_0/mlp/dense_0/bias", "block_0/mlp/dense_0/kernel")
    head = first_of(shape_of, "head/bias", "head/kernel")
    learned = shape_of("position_embedding/embedding") is not None
    hybrid = {}
    if root_conv:
        hybrid = {"resnet_stages": describe_stages(shape_of), "resnet_width": root_conv[-1]}
    return {
        "patch_size": tuple(patch_size),
        "embedding_dim": width,
        "depth": block_depth(shape_of),
        "num_heads": heads[1] if heads and len(heads) == 3 else None,
        "mlp_dim": mlp_dim[-1] if mlp_dim else None,
        "num_classes": head[-1] if head else 0,
        "image_channels": root_conv[2] if root_conv else channels,
        "pooling": "map" if is_map else "token" if has_class_token else "gap",
        "representation_size": pre_logits[-1] if pre_logits else None,
        "class_token": has_class_token,
        "position_embedding": "learned" if learned else "sincos2d",
        **hybrid,
    }


GOOGLE = Format("google", GOOGLE_ROWS, find_google, describe_flax)
BIG_VISION = Format(
    "big_vision",
    BIG_VISION_ROWS,
    find_big_vision,
    describe_flax,
    # Old files have a row for the class token; big_vision drops it where there is no such token.
    prefix_rows=lambda num_tokens, shape_of: (0, 1),
)
