"""The layout of big_vision's `.npz` files, and functions for the similar layout of vit_jax.

Both layouts hold flattened parameters of Flax. The first files of vit_jax numbered the layers of a
block by their position; later code numbers the layers of each class. All names are first changed to
the names in big_vision, as in the function `fix_old_checkpoints` of `big_vision/models/vit.py`.
"""

import re

from keras_vit.checkpoints.architecture import block_depth, first_shape, output_size
from keras_vit.checkpoints.formats.format import Format, without_zero_rows
from keras_vit.checkpoints.weight_map import POSITIONS, Naming, Row, attention, layer, norm
from keras_vit.models.options import ResNetOptions, VitOptions

# Prefixes of the model's arrays. Parameters that were saved with an optimizer are under `params` or
# `opt/target`. An image tower that was saved with a text tower is under `img`.
PREFIXES = ("params/img/", "params/", "opt/target/img/", "opt/target/", "img/", "")
# Names of arrays that are not part of the model: the state of an optimizer and counters; a text
# tower, and the temperature and bias of the contrastive loss.
NOT_THE_MODEL = re.compile(
    r"(opt|opt_state|extra|state|step|chrono)(/|$)|(params/|opt/target/)?(txt/|t$|b$)"
)

# Patterns of older names, and the current names.
RENAMED = [
    (r"^Transformer/posembed_input/pos_embedding$", "pos_embedding"),
    (r"^Transformer/pos_embedding$", "pos_embedding"),
    (r"^(?=(probe$|(MlpBlock|MultiHeadDotProductAttention|LayerNorm)_0/))", "MAPHead_0/"),
    (r"^(Transformer/encoderblock\w*/)LayerNorm_2/", r"\1LayerNorm_1/"),
    (r"^(Transformer/encoderblock\w*/)MultiHeadDotProductAttention_1/",
     r"\1MultiHeadDotProductAttention_0/"),
    (r"^(Transformer/encoderblock\w*/)MlpBlock_3/", r"\1MlpBlock_0/"),
]  # fmt: skip


def _mlp(source, target):
    return [row for i in (0, 1) for row in layer(f"{source}/Dense_{i}/", f"{target}/dense_{i}")]


# Names of the projections of attention layers.
PROJECTIONS = ("query", "key", "value", "out")
# Limits of the search for arrays, above the sizes of all published ResNets.
MAX_STAGES, MAX_UNITS = 8, 256


def resnet_rows(group_norm):
    """Return the weight map of a ResNet; `group_norm` is the transform of its GroupNorms."""
    source, target = "block{s}/unit{u}", "stage_{s}_unit_{u}"
    return (
        Row("conv_root/kernel", "root_conv/kernel"),
        *norm("gn_root/", "root_norm", transform=group_norm),
        *(
            row
            for part in ("1", "2", "3", "_proj")
            for row in (
                Row(f"{source}/conv{part}/kernel", f"{target}/conv_{part.strip('_')}/kernel"),
                *norm(
                    f"{source}/gn{part}/", f"{target}/norm_{part.strip('_')}", transform=group_norm
                ),
            )
        ),
    )


def describe_stages(shape_of):
    """Return the number of residual units per stage.

    Units of which the file has only some arrays are included.
    """
    stages = [_count_units(shape_of, stage) for stage in range(1, MAX_STAGES + 1)]
    while stages and not stages[-1]:
        stages.pop()
    return tuple(stages)


def _count_units(shape_of, stage):
    parts = ("conv_1/kernel", "conv_2/kernel", "conv_3/kernel", "norm_1/gamma")
    present = [
        unit
        for unit in range(1, MAX_UNITS + 1)
        if first_shape(shape_of, *(f"stage_{stage}_unit_{unit}/{part}" for part in parts))
    ]
    return present[-1] if present else 0


def describe_resnet(shape_of, config, num_heads):
    """Return the options of `resnet` for a file of a ResNet; see `Format.describe`."""
    *_, channels, width = shape_of("root_conv/kernel")
    return ResNetOptions(
        stages=describe_stages(shape_of),
        width=width,
        num_classes=output_size(shape_of, "head") or 0,
        image_size=None,
        image_channels=channels,
        # Only ResNets of version 1 have a norm after the first convolution.
        preactivation=shape_of("root_norm/gamma") is None,
    )


def flax_rows(positions, attention_name, norm_2, mlp, group_norm):
    """Return the weight map of a ViT, given the names that differ between the projects."""
    block = "Transformer/encoderblock_{i}"
    return (
        *resnet_rows(group_norm),
        *layer("embedding/", "patch_embedding/projection"),
        Row("cls", "class_token/token"),
        Row(positions, POSITIONS, "positions"),
        *norm(f"{block}/LayerNorm_0/", "block_{i}/layer_norm_1"),
        *attention(f"{block}/{attention_name}/", "block_{i}/attention", PROJECTIONS),
        *norm(f"{block}/{norm_2}/", "block_{i}/layer_norm_2"),
        *_mlp(f"{block}/{mlp}", "block_{i}/mlp"),
        *norm("Transformer/encoder_norm/", "encoder_norm"),
        *layer("pre_logits/", "pre_logits"),
        *layer("head/", "head"),
    )


BIG_VISION_ROWS = (
    *flax_rows(
        "pos_embedding",
        "MultiHeadDotProductAttention_0",
        "LayerNorm_1",
        "MlpBlock_0",
        "flat_group_norm",
    ),
    Row("MAPHead_0/probe", "pooling/probe"),
    *attention("MAPHead_0/MultiHeadDotProductAttention_0/", "pooling/attention", PROJECTIONS),
    *norm("MAPHead_0/LayerNorm_0/", "pooling/layer_norm"),
    *_mlp("MAPHead_0/MlpBlock_0", "pooling/mlp"),
)


def find_big_vision(shapes):
    """Return the `Naming` of a Flax ViT or a ResNet of `bit.py`, or `None`; see `Format.find`."""
    kernels = ("embedding/kernel", "conv_root/kernel")
    prefixes = (p for p in PREFIXES if any(len(shapes.get(f"{p}{k}", ())) == 4 for k in kernels))
    prefix = next(prefixes, None)
    if prefix is None:
        return None
    naming = Naming({}, {}, [])
    for name, shape in shapes.items():
        if name.startswith(prefix):
            _add(naming, _current_name(name.removeprefix(prefix)), name, shape)
        elif NOT_THE_MODEL.match(name):
            naming.ignored.append(name)
        else:
            _add(naming, name, name, shape)
    return naming


def _current_name(name):
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def _add(naming, name, stored_name, shape):
    stacked = "Transformer/encoderblock/"
    if not name.startswith(stacked) or not shape:
        naming.add(name, stored_name, shape)
        return
    # Models trained with `scan` stack the arrays of their blocks along a first axis.
    for index in range(shape[0]):
        block_name = f"Transformer/encoderblock_{index}/{name.removeprefix(stacked)}"
        naming.add(block_name, stored_name, shape[1:], index)


def describe_flax(shape_of, config, num_heads):
    """Return the options of a Flax ViT, or of a ResNet if there is no patch projection.

    The shapes of the arrays determine all options except the GELU; see `Format.describe`.
    """
    root_conv = shape_of("root_conv/kernel")
    if root_conv and shape_of("patch_embedding/projection/kernel") is None:
        return describe_resnet(shape_of, config, num_heads)
    *patch_size, channels, width = shape_of("patch_embedding/projection/kernel")
    has_class_token = shape_of("class_token/token") is not None
    is_map = shape_of("pooling/probe") is not None
    kernel = first_shape(shape_of, *(f"block_0/attention/{x}/kernel" for x in PROJECTIONS[:3]))
    has_positions = shape_of(POSITIONS) is not None
    hybrid = {}
    if root_conv:
        hybrid = {"resnet_stages": describe_stages(shape_of), "resnet_width": root_conv[-1]}
    return VitOptions(
        patch_size=patch_size,
        embedding_dim=width,
        depth=block_depth(shape_of),
        num_heads=kernel[1] if kernel and len(kernel) == 3 else None,
        mlp_dim=output_size(shape_of, "block_0/mlp/dense_0"),
        num_classes=output_size(shape_of, "head") or 0,
        image_size=None,
        image_channels=root_conv[2] if root_conv else channels,
        pooling="map" if is_map else "token" if has_class_token else "gap",
        representation_size=output_size(shape_of, "pre_logits"),
        class_token=has_class_token,
        position_embedding="learned" if has_positions else "sincos2d",
        **hybrid,
    )


def _store_positions(values, num_tokens):
    """Add the position of the class token to the token: big_vision stores only patch positions."""
    table = values[POSITIONS]
    if "class_token/token" not in values or not table[:, :num_tokens].any():
        return without_zero_rows(values, num_tokens)
    token = values["class_token/token"] + table[:, :1]
    return {**values, "class_token/token": token, POSITIONS: table[:, 1:]}


BIG_VISION = Format(
    "big_vision",
    BIG_VISION_ROWS,
    "`big_vision`: `.npz`, under `params/`",
    ".npz",
    find_big_vision,
    describe_flax,
    models=("ViT", "SigLIP's image tower", "FlexiViT", "DeiT III", "`bit.py`"),
    # Old files have a position row for a class token. If a model has no such token, big_vision
    # drops the row.
    prefix_rows=lambda num_tokens, shape_of: (0, 1),
    has_resnets=True,
    refused=lambda options: [] if options.resnet_stages is None else ["resnet_stages"],
    position_embeddings=("learned", "sincos2d"),
    store_positions=_store_positions,
    written_name=lambda name, options: f"params/{name}",
)
