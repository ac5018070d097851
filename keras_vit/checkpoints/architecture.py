"""What the formats' descriptions of a file's architecture share.

`shape_of` gives the shape of the array that holds a variable's values, or `None`.
"""

import logging

from keras_vit.core.arguments import check_integer
from keras_vit.models import VARIANTS, Variant

logger = logging.getLogger("keras_vit")

# The largest published model has 64 blocks; a file may be damaged and lack one in between.
MAX_DEPTH = 256

# Heads of the published models by their width: of those without a builder too, g-opt and e
# (`big_vision/models/vit.py`), and giantopt of timm.
HEADS_BY_WIDTH = {1536: 16, 1792: 16} | {
    row.embedding_dim: row.num_heads for row in VARIANTS if isinstance(row, Variant)
}


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


def torch_heads(width, configured, asked):
    """Heads of a model born in torch, whose arrays do not tell: they are flattened over the heads.

    Args:
        width: of a token.
        configured: heads that the file's configuration or other arrays tell, or `None`.
        asked: the argument `num_heads`, or `None`.

    Returns:
        What is told; else the heads of the published models of this width; else 64 channels a head.

    Raises:
        ValueError: if what is told disagrees, or 64 does not divide the width.
    """
    if configured is not None:
        configured = check_integer("num_heads", configured, minimum=1)
    if configured and asked and configured != asked:
        raise ValueError(
            f"`num_heads` must be that of the file's configuration, {configured}. "
            f"Received: num_heads={asked}"
        )
    heads = asked or configured
    if not heads:
        heads = HEADS_BY_WIDTH.get(width)
        if heads is None and width % 64 == 0:
            heads = width // 64
    if heads is None:
        raise ValueError(
            "`num_heads` must be given for a file of which no config.json tells it, and whose "
            f"width is not a multiple of 64. Received: num_heads=None, a width of {width}"
        )
    if not asked and not configured:
        logger.info("the file does not tell its attention heads: %d are taken", heads)
    return heads


def per_channel(values):
    """Return a list of three numbers; one number stands for all channels."""
    return [float(value) for value in (values * 3 if len(values) == 1 else values)]


def check_told(told, options):
    """Raises if a configuration tells other sizes than the arrays: it is of another model.

    Args:
        told: from the configuration's names to pairs of its value, or `None`, and the option of
            `vision_transformer` that it is about.
        options: that the arrays tell.
    """
    for name, (value, option) in told.items():
        actual = options[option]
        if isinstance(actual, tuple) and value is not None:
            value = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
        if value is not None and value != actual:
            raise ValueError(
                f"`{name}` of the file's config.json must be that of its arrays, {actual}. "
                f"Received: {name}={value!r}"
            )


def check_project(config, keys, project):
    """Raise an error if a `config.json` is not of the project whose weights it lies next to.

    Args:
        config: contents of the file; empty if there is none.
        keys: at least one of them is in each `config.json` of the project.
        project: its name.
    """
    if config and not any(config.get(key) for key in keys):
        raise ValueError(
            f"the config.json next to weights of {project} must be their own, with "
            f"{' or '.join(map(repr, keys))}: move it away to read the weights without it. "
            f"Received: a config.json with {', '.join(map(repr, list(config)[:4]))}"
        )


def check_epsilon(epsilon):
    """The epsilon of a configuration, checked to be a small positive number."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 < epsilon < 1:
        raise ValueError(
            "`layer_norm_eps` of the file's config.json must be a number between 0 and 1. "
            f"Received: layer_norm_eps={epsilon!r}"
        )
    return epsilon
