"""Models written to checkpoint files that other projects read."""

import contextlib
import json
import os
import pathlib

import keras
import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import FILE_SUFFIXES, WRITERS
from keras_vit.checkpoints.archives.memory import ArrayArchive
from keras_vit.checkpoints.configuration import (
    CONFIGURATION,
    MODEL,
    read_config,
    read_preprocessor,
)
from keras_vit.checkpoints.configuration.images import recorded_normalization
from keras_vit.checkpoints.formats import recognize, written_formats
from keras_vit.checkpoints.normalization import (
    BIAS,
    KERNEL,
    check_channels,
    is_centered,
    released,
)
from keras_vit.checkpoints.positions import num_prefix_tokens
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import POSITIONS, entries
from keras_vit.core.arguments import check_choice
from keras_vit.core.class_names import check_class_names
from keras_vit.core.files import replacing
from keras_vit.core.resizing import WHOLE_IMAGE
from keras_vit.layers.tokens import sincos_table
from keras_vit.models.base import CENTERED
from keras_vit.models.files import WEIGHTS_SUFFIX, check_finite
from keras_vit.models.introspection import options_of
from keras_vit.models.options import DROPOUT_OPTIONS, defaults_of
from keras_vit.models.variants import is_resnet, token_grid_of

# Options that do not change the trained function, or whose value the arrays contain.
NOT_COMPARED = (*DROPOUT_OPTIONS, "layer_scale", "patch_bias")
# Options that an error names where a layout refuses the model.
NAMED = ("pooling", "class_token", "representation_size", "num_classes", "activation", "qkv_bias")


def save_checkpoint(model, path, format, class_names=None, normalization=None):
    """Write the weights of a model to a file that another project reads.

    The file at `path` is replaced when the new one is complete.

    Args:
        model: a model of this package.
        path: path of the `.npz` file to write; or, for timm and transformers, of the directory of
            `model.safetensors`, `config.json` and the other files of the project, or of a
            `.safetensors` file for the weights alone. For transformers before version 5 in
            TensorFlow it is a directory or an `.h5` file too.
        format: name of the layout, such as `"google"` (vit_jax), `"timm"`, `"huggingface"` or
            `"huggingface_tf"`, a key of `keras_vit.checkpoints.formats.FORMATS`.
        class_names: names of the classes, for the `config.json`; `None` for those of the model. If
            they are given and there is no such file, a warning is logged.
        normalization: `(mean, standard_deviation)` of pixels in [0, 1], each a tuple of one number
            or of one per channel, with which the files of timm and transformers take images: their
            patch projection and their configuration are for it. `None` for that of the model's
            own files, `ImageModel.normalization`; for weights alone it is that which is recorded
            next to them, or the images are in [-1, 1]. The `.npz` layouts always take these.

    Raises:
        ValueError: if the layout cannot represent something in the model, such as register tokens;
            a weight is not finite; `path` is of another kind; or the class names are not as many
            different names as classes.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.save_checkpoint(model, tmp_path / "tiny.npz", format="google")
    >>> keras_vit.from_checkpoint(tmp_path / "tiny.npz").count_params() == model.count_params()
    True
    """
    formats = written_formats()
    check_choice("format", format, tuple(formats))
    format = _format_of(formats[format], path)
    path = _check_path(path, format)
    options = options_of(model)
    if class_names is not None:
        class_names = check_class_names(class_names, num_classes=options["num_classes"])
    format.check(options)
    check_finite(model, dtype="float32")
    is_directory = path.suffix != format.suffix
    # Weights alone are read with the configuration that is next to them.
    present = _configuration_next_to(path) if format.config_files and not is_directory else ({}, {})
    if normalization is None:
        own = getattr(model, "normalization", CENTERED)
        normalization = own if is_directory else recorded_normalization(*present, path)
    normalization = (format.config_files and normalization) or CENTERED
    arrays, files = _arrays(model, options, format, normalization), {}
    if is_directory:
        names = class_names or getattr(model, "class_names", None)
        resizing = getattr(model, "resizing", WHOLE_IMAGE)
        files = format.configure(options, arrays, names and list(names), normalization, resizing)
        path = path / format.name_in_directory
        _check_not_hidden(path)
        present = tuple(files.get(name, {}) for name in CONFIGURATION)
    elif class_names is not None:
        logger.warning("%s does not record the names of the classes", path)
    try:
        _check_read_back(arrays, present, options, format)
    except ValueError as error:
        if is_directory or not present[0]:
            raise
        raise ValueError(
            "`path` must not be next to the config.json of another model, with which the weights "
            f"would be read. Received: path={str(path)!r} ({error})"
        ) from error
    _write(path, arrays, files, _size_to_record(options))


def format_for(model, suffix):
    """Return the name of the first layout in files of a suffix that has a place for all weights.

    If there is none, return the first layout of this suffix.
    """
    options, paths = options_of(model), [variable.path for variable in model.weights]
    rows = [row for row in written_formats().values() if row.suffix == suffix]
    for row in rows:
        with contextlib.suppress(ValueError):
            row.check(options)
            if not entries(row.rows, paths)[1]:
                return row.name
    return rows[0].name


def _configuration_next_to(path):
    """Return the contents of the `config.json` and the `preprocessor_config.json` of a file."""
    return read_config(path.parent), read_preprocessor(path.parent)


def _format_of(format, path):
    """Return the layout of the same project in files of the path's suffix, if there is one."""
    rows = (row for row in written_formats().values() if row.family == format.name)
    return next((row for row in rows if str(path).endswith(row.suffix)), format)


def _check_path(path, format):
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"`path` must be a path. Received: path={path!r}")
    path = pathlib.Path(path).expanduser()
    kind, fits = f"a {format.suffix} file", path.suffix == format.suffix and not path.is_dir()
    fits = fits and not path.name.endswith(WEIGHTS_SUFFIX)
    if format.config_files:
        kind = f"a directory or a {format.suffix} file"
        fits = fits or not (path.is_file() or path.suffix in FILE_SUFFIXES)
    if not fits:
        raise ValueError(
            f"`path` must be {kind} for format={format.name!r}. Received: path={str(path)!r}"
        )
    return path


def _check_not_hidden(path):
    """Raise an error if another file of the directory would be read instead of a new one."""
    other = path.with_name(MODEL)
    if path != other and other.exists():
        raise ValueError(
            f"`path` must be a directory without {MODEL}, which is read instead of {path.name}. "
            f"Received: path={str(path.parent)!r}"
        )


def _size_to_record(options):
    """Return the image size of a model whose grid of patches is not square, or `None`."""
    grid = token_grid_of(options)
    return options["image_size"] if grid is not None and grid[0] != grid[1] else None


def _write(path, arrays, files, image_size):
    """Write the arrays, and the JSON files next to them: all files, or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            # The configuration is in its place before the weights.
            parts = {name: stack.enter_context(replacing(path.with_name(name))) for name in files}
            part = stack.enter_context(replacing(path))
            for name, contents in files.items():
                text = json.dumps(contents, indent=2) + "\n"
                parts[name].write_text(text, encoding="utf-8")
            WRITERS[path.suffix](part, arrays, image_size)
    except OSError as error:
        raise ValueError(
            f"`path` must be where files can be written. Received: path={str(path)!r} ({error})"
        ) from error


def _arrays(model, options, format, normalization):
    """Return the arrays of the file by name."""
    # Other projects do not read NumPy's form of bfloat16.
    values = {
        v.path: keras.ops.convert_to_numpy(keras.ops.cast(v.value, "float32"))
        for v in model.weights
    }
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
    if options["position_embedding"] not in ("learned", "sincos2d"):
        raise _not_describable(format, options, ["position_embedding"])
    num_prefix = num_prefix_tokens(options)
    if options["position_embedding"] == "sincos2d":
        if format.has_fixed_positions:
            return values
        table = sincos_table(token_grid_of(options), options["embedding_dim"])
        prefix = np.zeros((1, num_prefix, table.shape[2]))
        values = {**values, POSITIONS: np.concatenate([prefix, table], axis=1).astype("float32")}
    return format.store_positions(values, num_prefix)


def _check_read_back(arrays, configuration, options, format):
    """Raise an error if the file would be read as another model than the one written."""
    archive = ArrayArchive(f"the {format.name} file", arrays, *configuration)
    checkpoint = CheckpointReader(archive, *recognize(archive, format.name))
    compared = set(options) - set(NOT_COMPARED)
    if not format.has_fixed_positions:
        # Fixed sines and cosines become a learned table.
        compared.discard("position_embedding")
    try:
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
    fatal = [name for name in different if name not in ("activation", "epsilon")]
    if fatal:
        raise _not_describable(format, options, fatal)
    if "num_heads" in checkpoint.options_without_config:
        heads = _read_option("num_heads", checkpoint, None, options["image_size"])
        read["num_heads"] = heads or given[0]
        different += ["num_heads"] if read["num_heads"] != given[0] else []
    is_recorded = checkpoint.records_image_size or _size_to_record(options) is not None
    if not is_recorded and size != options["image_size"]:
        read["image_size"] = size
        different.append("image_size")
    for name in different:
        logger.warning(
            "%s files do not record %s: %r becomes %r when this one is read",
            *(format.name, name, options[name], read[name]),
        )


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
