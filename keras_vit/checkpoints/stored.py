"""The arrays that a layout stores for a model, and whether they are read as the same model."""

import contextlib

import keras
import numpy as np

from keras_vit.checkpoints.archives.memory import ArrayArchive
from keras_vit.checkpoints.formats import recognize
from keras_vit.checkpoints.normalization import BIAS, KERNEL, check_channels, is_centered, released
from keras_vit.checkpoints.positions import num_prefix_tokens
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import POSITIONS, entries
from keras_vit.layers.positions.added import sincos_table
from keras_vit.models.options import DROPOUT_OPTIONS, defaults_of
from keras_vit.models.variants import is_resnet, token_grid_of

# Options that do not change the trained function, or whose value the arrays contain.
NOT_COMPARED = (*DROPOUT_OPTIONS, "layer_scale", "patch_bias")
# Options of which other projects have no models but with these values.
OWN_OPTIONS = {"position_placement": "stem", "axial": False}
# Position embeddings that no other project has.
OWN_EMBEDDINGS = ("learned2d", "relative")
# Options that an error names where a layout refuses the model.
NAMED = ("pooling", "class_token", "representation_size", "num_classes", "activation", "qkv_bias")


def size_to_record(options):
    """Return the image size of a model whose grid of patches is not square, or `None`."""
    grid = token_grid_of(options)
    return options["image_size"] if grid is not None and grid[0] != grid[1] else None


def values_of(model):
    """Return the values of a model's variables by path, in float32."""
    # Other projects do not read NumPy's form of bfloat16.
    return {
        v.path: keras.ops.convert_to_numpy(keras.ops.cast(v.value, "float32"))
        for v in model.weights
    }


def check_describable(format, options):
    """Raise `ValueError` for a model that the project of a layout does not have."""
    own = [name for name, value in OWN_OPTIONS.items() if options.get(name, value) != value]
    own += ["position_embedding"] * (options.get("position_embedding") in OWN_EMBEDDINGS)
    if own:
        raise _not_describable(format, options, own)
    format.check(options)


def arrays_of(values, options, format, normalization):
    """Return the arrays of a file by name.

    Args:
        values: values of the model's variables, see `values_of`.
        options: options of the model.
        format: the `Format` of the file.
        normalization: as in `save_checkpoint`.

    Raises:
        ValueError: if the layout has no place for something in the model.
    """
    values = dict(values)
    if KERNEL in values and not is_centered(normalization):
        check_channels(normalization, options["image_channels"], "normalization")
        values |= released(values, normalization)
    if not format.has_patch_bias(options):
        values = _without_patch_bias(format, values, options)
    values = _with_positions_of(format, values, options)
    found, without_row = entries(format.rows, values)
    if without_row:
        listed = ", ".join(without_row[:4]) + (" ..." if len(without_row) > 4 else "")
        raise ValueError(
            f"`model` must have nothing that {format.name} files have no place for. "
            f"Received: a model with {listed}"
        )
    arrays = {
        entry.source: TRANSFORMS[entry.transform].write([values[t] for t in entry.targets])
        for entry in found
    }
    arrays |= format.constants(options)
    return {format.spell(name, options): array for name, array in arrays.items()}


def _without_patch_bias(format, values, options):
    """Return the values of a model whose project has no bias in the patch projection."""
    bias = values.pop(BIAS, None)
    if bias is None or not bias.any():
        return values
    if options["position_embedding"] != "learned":
        raise _not_describable(format, options, ["patch_bias", "position_embedding"])
    # A bias adds the same to each patch, as an addition to their positions does.
    is_patch = np.arange(values[POSITIONS].shape[1])[:, None] >= num_prefix_tokens(options)
    return {**values, POSITIONS: values[POSITIONS] + is_patch * bias}


def _with_positions_of(format, values, options):
    """Return the values, with the position embedding as the layout stores it."""
    if is_resnet(options):
        return values
    kind, described = options["position_embedding"], format.position_embeddings
    becomes_learned = kind == "sincos2d" and kind not in described
    if ("learned" if becomes_learned else kind) not in described:
        raise _not_describable(format, options, ["position_embedding"])
    num_prefix = num_prefix_tokens(options)
    if becomes_learned:
        table = sincos_table(token_grid_of(options), options["embedding_dim"])
        prefix = np.zeros((1, num_prefix, table.shape[2]))
        values = {**values, POSITIONS: np.concatenate([prefix, table], axis=1).astype("float32")}
    elif kind != "learned":
        return values
    return format.store_positions(values, num_prefix)


def lost_options(arrays, configuration, options, format):
    """Return the options that a file does not record, and the values with which it is read.

    The value is `None` for an option that must be given when the file is read.

    Args:
        arrays: the arrays of the file by name.
        configuration: contents of the `config.json` and the `preprocessor_config.json` next to it.
        options: options of the model.
        format: the `Format` of the file.

    Raises:
        ValueError: if a file would be read as another model than the one written.
    """
    archive = ArrayArchive(f"the {format.name} file", arrays, *configuration)
    compared = set(options) - set(NOT_COMPARED)
    if options.get("position_embedding") == "sincos2d" not in format.position_embeddings:
        # They become a learned table.
        compared.discard("position_embedding")
    try:
        checkpoint = CheckpointReader(archive, *recognize(archive, format.name))
        given = options.get("num_heads"), options["image_size"]
        read = checkpoint.options(*given)
        read = {**defaults_of(read), **read}
    except ValueError as error:
        raise _not_describable(format, options, [n for n in NAMED if n in options]) from error
    size = _read_option("image_size", checkpoint, given[0])
    has_table = checkpoint.shape_of(POSITIONS) is not None
    if has_table and size not in (None, options["image_size"]):
        raise _not_describable(format, options, ["image_size"])
    different = sorted(name for name in compared if options[name] != read[name])
    logged = ["epsilon"]
    # Another GELU changes outputs little, another activation does not.
    if "gelu" in str(options.get("activation")):
        logged.append("activation")
    fatal = [name for name in different if name not in logged]
    if fatal:
        raise _not_describable(format, options, fatal)
    if "num_heads" in checkpoint.options_without_config:
        read["num_heads"] = _read_option("num_heads", checkpoint, None, options["image_size"])
        different += ["num_heads"] if read["num_heads"] != given[0] else []
    is_recorded = checkpoint.records_image_size or size_to_record(options) is not None
    if not is_recorded and size != options["image_size"]:
        read["image_size"] = size
        different.append("image_size")
    return {name: read[name] for name in different}


def _read_option(name, checkpoint, num_heads, image_size=None):
    """Return an option as it is read with these arguments, `None` if the reader asks for more."""
    with contextlib.suppress(ValueError):
        return checkpoint.options(num_heads, image_size)[name]


def _not_describable(format, options, names):
    values = ", ".join(f"{name}={options[name]!r}" for name in names)
    return ValueError(
        f"`model` must be one that {format.name} files can describe. "
        f"Received: a model with {values}"
    )
