"""The layout of vit_jax's released `.npz` files.

The names are those of big_vision, with other numbers for the layers of a block.
"""

import re

from keras_vit.checkpoints.formats.big_vision import (
    BIG_VISION_ROWS,
    describe_flax,
    find_big_vision,
    flax_rows,
)
from keras_vit.checkpoints.formats.format import Format

GOOGLE_ROWS = flax_rows(
    "Transformer/posembed_input/pos_embedding",
    "MultiHeadDotProductAttention_1",
    "LayerNorm_2",
    "MlpBlock_3",
    "group_norm",
)
# The last rows of big_vision, for attention pooling, have no counterpart in vit_jax.
GOOGLE_NAMES = {
    new.source: old.source for new, old in zip(BIG_VISION_ROWS, GOOGLE_ROWS, strict=False)
}


def find_google(shapes):
    """Return the `Naming` of a ViT of vit_jax, or `None`; see `Format.find`."""
    naming = find_big_vision(shapes)
    is_vit_jax = any(name.endswith("posembed_input/pos_embedding") for name in shapes)
    if naming is None or not is_vit_jax or "MAPHead_0/probe" in naming.shapes:
        return None
    return naming.renamed(_vit_jax_name)


def _vit_jax_name(name):
    """Return the name of an array in vit_jax, given its name in big_vision."""
    block = re.match(r"Transformer/encoderblock_(\d+)/", name)
    if block is None:
        return GOOGLE_NAMES.get(name, name)
    template = name.replace(block[0], "Transformer/encoderblock_{i}/", 1)
    return GOOGLE_NAMES.get(template, template).format(i=block[1])


GOOGLE = Format(
    "google",
    GOOGLE_ROWS,
    "`google`: vit_jax's released `.npz`",
    ".npz",
    find_google,
    describe_flax,
    models=("vit_jax: ViT", "vit_jax: hybrids", "AugReg", "SAM"),
)
