"""Checks of options of `vision_transformer`, most of them of options that exclude each other."""

from keras_vit.core.arguments import check_choice, is_number
from keras_vit.core.choices import (
    ATTENTION_EMBEDDINGS,
    CLASS_TOKEN_POOLINGS,
    PLACED_EMBEDDINGS,
    POSITION_EMBEDDINGS,
    POSITION_PLACEMENTS,
)

# What needs a known grid of patches, by the argument of a block that has it.
GRID_ARGUMENTS = {
    "rotary_grid_size": "rotary positions",
    "relative_grid_size": "relative positions",
    "grid_size": "axial attention",
}


def has_class_token(pooling, axial=False):
    """Return whether a model with such options has a class token by default."""
    return pooling in CLASS_TOKEN_POOLINGS or (pooling is None and not axial)


def check_pooling(
    pooling, class_token, distillation_token, representation_size, projection_dim, fc_norm, norm
):
    """Raise `ValueError` for tokens and layers of the head that do not fit the pooling.

    `norm` is the option `final_norm`.
    """
    if pooling in CLASS_TOKEN_POOLINGS and not class_token:
        raise ValueError(f"`pooling={pooling!r}` needs a class token. Received: class_token=False")
    head_layers = representation_size, projection_dim
    if distillation_token and (pooling != "token" or head_layers != (None, None)):
        raise ValueError(
            "`distillation_token` needs `pooling='token'`, and neither `representation_size` nor "
            f"`projection_dim`. Received: {pooling=}, {representation_size=}, {projection_dim=}"
        )
    if fc_norm and (pooling != "gap" or not norm):
        raise ValueError(
            "`fc_norm` needs `pooling='gap'` and `final_norm=True`. "
            f"Received: pooling={pooling!r}, final_norm={norm!r}"
        )


def check_positions(position_embedding, position_placement="stem"):
    """Raise `ValueError` for unknown position embeddings, or a place where they cannot be."""
    check_choice("position_embedding", position_embedding, POSITION_EMBEDDINGS)
    check_choice("position_placement", position_placement, POSITION_PLACEMENTS)
    if position_placement != "stem" and position_embedding not in PLACED_EMBEDDINGS:
        raise ValueError(
            f"`position_placement` must be 'stem' unless `position_embedding` is one of "
            f"{PLACED_EMBEDDINGS}. Received: {position_placement=}, {position_embedding=}"
        )


def check_axial(pooling, position_embedding, class_token=False, num_registers=0):
    """Raise `ValueError` unless the blocks of such a model may be axial."""
    is_of_patches = pooling not in CLASS_TOKEN_POOLINGS and not class_token and not num_registers
    if not is_of_patches or position_embedding in ATTENTION_EMBEDDINGS:
        raise ValueError(
            "`axial=True` needs a model of patches alone, which have rows and columns: `pooling` "
            "'gap', 'map' or None, no class token and no registers; and a `position_embedding` "
            f"that is none of {ATTENTION_EMBEDDINGS}. "
            f"Received: {pooling=}, {class_token=}, {num_registers=}, {position_embedding=}"
        )


def block_grids(position_embedding, axial, grid):
    """Return the arguments of blocks that are the grid of patches, by name.

    Raises:
        ValueError: if there are any, and `grid` is `None`, that of images of any size.
    """
    names = [f"{kind}_grid_size" for kind in ATTENTION_EMBEDDINGS if kind == position_embedding]
    return known_grids([*names, "grid_size"] if axial else names, grid)


def known_grids(names, grid):
    """Return the grid for each of these arguments of blocks, or raise `ValueError` for `None`."""
    for name in names if grid is None else ():
        raise ValueError(f"`image_size` must be given for {GRID_ARGUMENTS[name]}. Received: None")
    return dict.fromkeys(names, grid)


def check_layer_scale(layer_scale):
    """Raise `ValueError` unless the value is that of LayerScale's factors, or `None`."""
    if layer_scale is not None and not is_number(layer_scale):
        raise ValueError(
            "`layer_scale` must be a finite number, the factors' initial value, or None. "
            f"Received: layer_scale={layer_scale!r}"
        )
