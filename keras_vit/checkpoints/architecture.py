"""What the formats' descriptions of a file's architecture share.

`shape_of` gives the shape of the array that holds a variable's values, or `None`.
"""

from keras_vit.models import VARIANTS

# The largest published model has 64 blocks; a file may be damaged and lack one in between.
MAX_DEPTH = 256

# Published models whose heads are not 64 wide (`big_vision/models/vit.py` and timm): width, heads.
HEADS_BY_WIDTH = {1536: 16, 1792: 16}


def block_depth(shape_of):
    """The number of Transformer blocks, counting those of which only a part is there."""
    parts = ("layer_norm_1/gamma", "attention/query/kernel", "attention/output/kernel")
    present = [
        index
        for index in range(MAX_DEPTH)
        if any(shape_of(f"block_{index}/{part}") is not None for part in parts)
    ]
    return present[-1] + 1 if present else 0


def first_of(shape_of, *paths):
    """The first of the shapes that is there, or `None`."""
    return next((shape for path in paths if (shape := shape_of(path)) is not None), None)


def torch_heads(width, depth, configured, asked):
    """Heads of a model born in torch, whose arrays do not tell: they are flattened over the heads.

    Args:
        width: of a token.
        depth: number of blocks.
        configured: heads that the file's configuration or other arrays tell, or `None`.
        asked: the argument `num_heads`, or `None`.

    Returns:
        What is told; else the heads of the published model of this size; else 64 channels a head.

    Raises:
        ValueError: if what is told disagrees, or 64 does not divide the width.
    """
    if configured and asked and configured != asked:
        raise ValueError(
            f"`num_heads` must be that of the file's configuration, {configured}. "
            f"Received: num_heads={asked}"
        )
    published = {(row.embedding_dim, row.depth): row.num_heads for row in VARIANTS}
    heads = asked or configured or published.get((width, depth)) or HEADS_BY_WIDTH.get(width)
    if heads is None and width % 64 == 0:
        heads = width // 64
    if heads is None:
        raise ValueError(
            "`num_heads` must be given for a file without its config.json whose width is not a "
            f"multiple of 64. Received: num_heads=None, a width of {width}"
        )
    return heads
