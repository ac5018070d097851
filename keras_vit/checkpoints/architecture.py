"""Functions for `Format.describe`: read a model's architecture from the shapes of its arrays."""

import logging

from keras_vit.core.arguments import check_integer
from keras_vit.models.options import VitOptions
from keras_vit.models.variants import VARIANTS

logger = logging.getLogger("keras_vit")

# Number of blocks to look for. The largest published model has 64. A missing block does not end the
# search, because a damaged file may lack blocks.
MAX_DEPTH = 256

# Numbers of heads of published models, by width and whether the MLP is gated. The first is ViT-e,
# which has no builder (`big_vision/models/vit.py`).
HEADS = {(1792, False): 16} | {
    (row.embedding_dim, row.gated_mlp): row.num_heads
    for row in VARIANTS
    if isinstance(row, VitOptions)
}


def block_depth(shape_of):
    """Return the number of Transformer blocks, including incomplete blocks."""
    parts = ("layer_norm_1/gamma", "attention/query/kernel", "attention/output/kernel")
    present = [
        index
        for index in range(MAX_DEPTH)
        if any(shape_of(f"block_{index}/{part}") is not None for part in parts)
    ]
    return present[-1] + 1 if present else 0


def first_shape(shape_of, *paths):
    """Return the shape of the first of these variables that the file has, or `None`."""
    return next((shape for path in paths if (shape := shape_of(path)) is not None), None)


def output_size(shape_of, layer, axis=-1):
    """Return the number of outputs of a dense layer, or `None` if there is no such layer.

    `axis` is the axis of the outputs in the kernel of the file.
    """
    shape = first_shape(shape_of, f"{layer}/bias", f"{layer}/kernel")
    return shape[axis] if shape else None


def torch_heads(width, configured_heads, num_heads, gated_mlp=False):
    """Return the number of attention heads of weights whose kernels do not have an axis of heads.

    It is `configured_heads`, which the file records, or else `num_heads`, which the caller gives,
    or else the number of heads of published models of this width and kind of MLP. Raise an error if
    there are no such models: with a wrong number of heads, the outputs would be wrong.
    """
    for number in (configured_heads, num_heads):
        if number is not None:
            return check_integer("num_heads", number, minimum=1)
    heads = HEADS.get((width, gated_mlp))
    if heads is None:
        raise ValueError(
            "`num_heads` must be given for a file that does not record it (as a `config.json` "
            "does) if no published model has this width and kind of MLP; `keras-vit convert FILE "
            "NEW.keras --num-heads N` writes a file that records it. "
            f"Received: num_heads=None, a width of {width}, gated_mlp={gated_mlp}"
        )
    return heads


def torch_options(shape_of, configured_heads, num_heads, gated_mlp=False, mlp_dim=None):
    """Return the fields of `VitOptions` that the shapes of PyTorch's arrays determine.

    `mlp_dim` is the width of a gated MLP. The other arguments are those of `torch_heads`.
    """
    width, channels, *patch_size = shape_of("patch_embedding/projection/kernel")
    return {
        "patch_size": tuple(patch_size),
        "embedding_dim": width,
        "depth": block_depth(shape_of),
        "num_heads": torch_heads(width, configured_heads, num_heads, gated_mlp),
        "mlp_dim": mlp_dim or output_size(shape_of, "block_0/mlp/dense_0", axis=0),
        "num_classes": output_size(shape_of, "head", axis=0) or 0,
        "image_channels": channels,
    }


def grid_of(image_size, patch_size):
    """Return the rows and columns of patches in an image, without incomplete patches."""
    return tuple(pixels // patch for pixels, patch in zip(image_size, patch_size, strict=True))


def num_registers(shape_of):
    """Return the number of register tokens."""
    shape = shape_of("register_tokens/tokens")
    return shape[1] if shape else 0


def per_channel(values, channels):
    """Return a list of one number per channel; a single number is repeated."""
    return [float(value) for value in (values * channels if len(values) == 1 else values)]


def in_order(names):
    """Return class names as a list; `names` may be a JSON object from indices to names."""
    return [names.get(str(i)) for i in range(len(names))] if isinstance(names, dict) else names


def check_setting(config, name, *allowed):
    """Raise an error if a setting is not an allowed value; the first of these is the default."""
    if config.get(name, allowed[0]) not in allowed:
        raise ValueError(
            f"`{name}` of the model's configuration must be {' or '.join(map(repr, allowed))}. "
            f"Received: {name}={config[name]!r}"
        )


def check_recorded(config, names, options):
    """Raise an error if a configuration contradicts the arrays, and so belongs to another model.

    `names` maps settings to options of `vision_transformer` that the arrays determine. A setting
    with the value `None` counts as not recorded.
    """
    for name, option in names.items():
        value, actual = config.get(name), getattr(options, option)
        if isinstance(actual, tuple) and value is not None:
            value = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
        if value is not None and value != actual:
            raise ValueError(
                f"`{name}` of the model's configuration must be that of its arrays, {actual}. "
                f"Received: {name}={value!r}"
            )


def check_project(config, keys, project):
    """Raise an error if `config` has none of the `keys` of a project's configurations."""
    if config and not any(config.get(key) for key in keys):
        raise ValueError(
            f"the configuration next to weights of {project} must be a file of {project}, with "
            f"{' or '.join(map(repr, keys))}: move the file away to read only the weights. "
            f"Received: a configuration with {', '.join(map(repr, list(config)[:4]))}"
        )


def not_square(options):
    """List the sizes that are not square, for models that support only square sizes.

    See `Format.refused`.
    """
    return [name for name in ("image_size", "patch_size") if len({*getattr(options, name)}) > 1]


def initial_layer_scale(shape_of, recorded):
    """Return the recorded initial value of LayerScale, else 1e-5; `None` without LayerScale.

    Files contain the trained factors, but not always their initial value.
    """
    has_scale = shape_of("block_0/layer_scale_1/gamma") is not None
    return (recorded or 1e-5) if has_scale else None
