"""Helpers with which the layouts describe the architecture of a file; see `Format.describe`."""

import logging

from keras_vit.core.arguments import check_integer
from keras_vit.models.options import VitOptions
from keras_vit.models.variants import VARIANTS

logger = logging.getLogger("keras_vit")

# The largest published model has 64 blocks; a file may be damaged and lack one in between.
MAX_DEPTH = 256

# Heads of the published models by width and kind of MLP, also of `e`, which has no builder
# (`big_vision/models/vit.py`).
HEADS = {(1792, False): 16} | {
    (row.embedding_dim, row.gated_mlp): row.num_heads
    for row in VARIANTS
    if isinstance(row, VitOptions)
}


def block_depth(shape_of):
    """Return the number of Transformer blocks; incomplete blocks count too."""
    parts = ("layer_norm_1/gamma", "attention/query/kernel", "attention/output/kernel")
    present = [
        index
        for index in range(MAX_DEPTH)
        if any(shape_of(f"block_{index}/{part}") is not None for part in parts)
    ]
    return present[-1] + 1 if present else 0


def first_of(shape_of, *paths):
    """Return the first shape that is not `None`, or `None`."""
    return next((shape for path in paths if (shape := shape_of(path)) is not None), None)


def output_size(shape_of, layer, axis=-1):
    """Return the outputs of a dense layer, on `axis` of its kernel; `None` without a layer."""
    shape = first_of(shape_of, f"{layer}/bias", f"{layer}/kernel")
    return shape[axis] if shape else None


def torch_heads(width, configured, asked, gated_mlp=False):
    """Return the number of heads of weights trained in PyTorch, whose kernels are 2-D.

    It is `configured` (recorded in the file) or `asked` (by the caller). Without both it is that of
    the published models of this width and kind of MLP; if there are none, it is an error, as the
    same weights with another number are another model.
    """
    for given in (configured, asked):
        if given is not None:
            return check_integer("num_heads", given, minimum=1)
    heads = HEADS.get((width, gated_mlp))
    if heads is None:
        raise ValueError(
            "`num_heads` must be given for a file that does not record it (as a `config.json` "
            "does) if no published model has this width and kind of MLP; `keras-vit convert FILE "
            "NEW.keras --num-heads N` writes a file that does. "
            f"Received: num_heads=None, a width of {width}, gated_mlp={gated_mlp}"
        )
    return heads


def torch_options(shape_of, configured_heads, asked_heads, gated_mlp=False, mlp_dim=None):
    """Return the fields of `VitOptions` that the shapes of PyTorch's arrays determine.

    The heads are those of `torch_heads`; `mlp_dim` is that of a gated MLP.
    """
    width, channels, *patch_size = shape_of("patch_embedding/projection/kernel")
    return {
        "patch_size": tuple(patch_size),
        "embedding_dim": width,
        "depth": block_depth(shape_of),
        "num_heads": torch_heads(width, configured_heads, asked_heads, gated_mlp),
        "mlp_dim": mlp_dim or output_size(shape_of, "block_0/mlp/dense_0", axis=0),
        "num_classes": output_size(shape_of, "head", axis=0) or 0,
        "image_channels": channels,
    }


def grid_of(image_size, patch_size):
    """Return the rows and columns of the whole patches of an image."""
    return tuple(pixels // patch for pixels, patch in zip(image_size, patch_size, strict=True))


def num_registers(shape_of):
    """Return the number of register tokens."""
    shape = shape_of("register_tokens/tokens")
    return shape[1] if shape else 0


def per_channel(values):
    """Return a list of three numbers; one number stands for all channels."""
    return [float(value) for value in (values * 3 if len(values) == 1 else values)]


def in_order(names):
    """Return class names in order; a dictionary has their indices as strings."""
    return [names.get(str(i)) for i in range(len(names))] if isinstance(names, dict) else names


def check_recorded(config, names, options):
    """Raise an error if a configuration does not fit the arrays: it is that of another model.

    `names` maps settings to options of `vision_transformer`, which follow from the arrays. A
    setting that is `None` is not recorded.
    """
    for name, option in names.items():
        value, actual = config.get(name), getattr(options, option)
        if isinstance(actual, tuple) and value is not None:
            value = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
        if value is not None and value != actual:
            raise ValueError(
                f"`{name}` of the file's config.json must be that of its arrays, {actual}. "
                f"Received: {name}={value!r}"
            )


def check_project(config, keys, project):
    """Raise an error if `config` is not of `project`, whose configurations have one of `keys`."""
    if config and not any(config.get(key) for key in keys):
        raise ValueError(
            f"the config.json next to weights of {project} must be their own, with "
            f"{' or '.join(map(repr, keys))}: move it away to read the weights without it. "
            f"Received: a config.json with {', '.join(map(repr, list(config)[:4]))}"
        )
