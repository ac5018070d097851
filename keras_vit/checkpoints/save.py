"""Save models in the checkpoint layouts of other projects, after checking that nothing is lost."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import FILE_SUFFIXES, WRITERS, ArrayArchive
from keras_vit.checkpoints.configuration import (
    CONFIGURATION,
    MODEL,
    PREPROCESSOR,
    PROCESSOR,
    SHARD_INDEX,
    TF_MODEL,
    read_configuration,
    recorded_images,
    warn_of_lost_preparation,
)
from keras_vit.checkpoints.formats import recognize, written_formats
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.checkpoints.transforms import BIAS, KERNEL, TRANSFORMS, check_channels, release
from keras_vit.checkpoints.weight_map import POSITIONS, entries
from keras_vit.core.arguments import check_choice, path_error
from keras_vit.core.files import replacing
from keras_vit.core.image_spec import WHOLE_IMAGE
from keras_vit.core.text import check_class_names
from keras_vit.layers.positions import sincos_table
from keras_vit.models.image_model import image_spec_of, options_of
from keras_vit.models.keras_files import WEIGHTS_SUFFIX, check_finite
from keras_vit.models.options import is_resnet, option_differences
from keras_vit.models.structure import stored_size
from keras_vit.models.surgery import resize, with_float_kernels

# Options that only this package has, and their values in models of other projects.
OWN_OPTIONS = {"position_placement": "stem", "axial": False}
# Position embeddings that no other project has.
OWN_EMBEDDINGS = ("learned2d", "relative")
# Options that an error lists if a file of the layout would not describe a model.
LISTED = ("pooling", "class_token", "representation_size", "num_classes", "activation", "qkv_bias")


def save_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    format: str | None = None,
    class_names: Sequence[str] | None = None,
    normalization: tuple | None = None,
) -> None:
    """Write the weights of a model to a file that another project reads.

    An existing file is replaced when the new one is complete. A model of any image size is written
    at the size of its position embeddings.

    Args:
        model: a model of this package.
        path: path of the `.npz` file to write. For timm and transformers, path of a directory for
            `model.safetensors`, `config.json` and the other files of the project, or of a
            `.safetensors` file for the weights alone. For TensorFlow models of transformers before
            version 5, path of a directory or an `.h5` file.
        format: name of the layout, such as `"google"` (vit_jax), `"timm"`, `"huggingface"` or
            `"huggingface_tf"`, a key of `keras_vit.checkpoints.formats.FORMATS`. `"timm"` and
            `"huggingface"` stand for all layouts of the project (ViT, DeiT, DINOv2, CLIP and
            others): the layout that the model was read from, or else the first that can describe
            the model. `None` stands for all layouts with the suffix of `path`; a directory needs a
            name.
        class_names: names of the classes, for the `config.json`; `None` for the names of the model.
            A warning is logged if names are given and no `config.json` is written.
        normalization: `(mean, standard_deviation)` of pixels in [0, 1], each a tuple of one number
            or of one per channel, for the patch projection and the configuration of timm and
            transformers. `None` for the normalization of `ImageModel.image_spec`, or, for weights
            alone, for the recorded one next to them, and [-1, 1] without a record. The `.npz`
            layouts always take images in [-1, 1].

    Raises:
        ValueError: if the layout cannot represent a part of the model, such as register tokens; a
            weight is not finite; `path` has the wrong kind, or is a directory with other weights
            that would be read with the new `config.json`; or the class names are not unique, or
            not one per class.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.save_checkpoint(model, tmp_path / "tiny.npz", format="google")
    >>> keras_vit.from_checkpoint(tmp_path / "tiny.npz").count_params() == model.count_params()
    True
    """
    formats = written_formats()
    suffix = pathlib.PurePath(str(path)).suffix
    if format is None and suffix in {row.suffix for row in formats.values()}:
        format = format_for(model, suffix)
    check_choice("format", format, tuple(formats))
    format = _format_for_suffix(formats[format], path)
    path = _target_path(path, format)
    model = at_stored_size(model)
    options = options_of(model).resolved()
    if class_names is not None:
        class_names = check_class_names(class_names, num_classes=options.num_classes)
    check_finite(model, dtype="float32")
    is_directory = path.suffix != format.suffix
    # Weights alone are read with the configuration next to them.
    has_present = format.config_files and not is_directory
    present = read_configuration(path.parent) if has_present else ({}, {})
    image_spec = image_spec_of(model)
    recorded = image_spec if is_directory else recorded_images(*present, path) or WHOLE_IMAGE
    if normalization is None or not format.config_files:
        normalization = recorded.normalization
    mean, deviation = normalization
    image_spec = dataclasses.replace(image_spec, mean=mean, deviation=deviation)
    if is_directory:
        names = class_names or getattr(model, "class_names", None)
        names = names and list(names)
        format, arrays, files = as_files(model, options, format, image_spec, names)
        path = path / format.name_in_directory
        _check_not_hidden(path, files)
    else:
        if class_names is not None:
            logger.warning("%s does not record the names of the classes", path)
        try:
            format, arrays, files = as_files(model, options, format, image_spec, present=present)
        except ValueError as error:
            if not present[0]:
                raise
            raise ValueError(
                "`path` must not be next to the config.json of another model, with which the "
                f"weights would be read. Received: path={str(path)!r} ({error})"
            ) from error
    _record_thresholds(model, format, files, present[0], path)
    written = [files.get(name, {}) for name in CONFIGURATION] if is_directory else present
    warn_of_lost_preparation(*written, path, image_spec, options.image_size)
    write_files(path, arrays, files, size_to_record(options))


def _record_thresholds(model, format, files, present, path):
    """Record in the `config.json` that a model is multi-label, or warn if this is impossible.

    `present` is the existing `config.json` next to weights alone.
    """
    thresholds, record = getattr(model, "thresholds", None), format.multi_label
    is_recorded = bool(record) and record.items() <= present.items()
    if thresholds is None:
        if is_recorded:
            raise ValueError(
                "`path` must not be next to the config.json of a multi-label model, with which the "
                f"weights would be read. Received: path={str(path)!r}"
            )
        return
    config = CONFIGURATION[0]
    if record and config in files:
        files[config] |= record
        is_recorded = True
    if not is_recorded:
        logger.warning(
            "%s does not record that the model is multi-label: sigmoid probabilities and "
            "`model.thresholds` are lost",
            path,
        )
    elif set(thresholds) != {0.5}:
        logger.warning("%s does not record `model.thresholds`: they are read as 0.5", path)


def as_files(model, options, format, image_spec, class_names=None, present=None):
    """Return the first layout of a family that can describe a model, its arrays and JSON files.

    For weights alone, `present` is the configuration next to them, and there are no JSON files.
    """
    values, errors = values_of(model), []
    for row in _candidates(format, values, getattr(model, "layout", None)):
        try:
            check_describable(row, options)
            arrays, files = arrays_of(values, options, row, image_spec), {}
            if present is None:
                recorded = options.replace(image_size=image_spec.full_size(options.image_size))
                files = row.configure(recorded, arrays, class_names, image_spec)
            written = present or [files.get(name, {}) for name in CONFIGURATION]
            lost = lost_options(arrays, written, options, row)
        except ValueError as error:
            errors.append((row.name == getattr(model, "layout", None), error))
            continue
        for name, value in lost.items():
            text = f"{row.name} files do not record {name}: "
            if value is None:
                text += f"give {name}={getattr(options, name)!r} when the file is read"
            else:
                text += f"{getattr(options, name)!r} becomes {value!r} when the file is read"
            logger.warning("%s", text)
        return row, arrays, files
    # Prefer the error of the layout that the model was read from.
    raise max(errors, key=lambda error: error[0])[1]


def _candidates(format, paths, preferred):
    """Return `format` and the other layouts of its family with the same suffix, the best first.

    Layouts with a row for each variable of a model come first, and among equals the layout of the
    name `preferred`.
    """
    family = [
        row
        for row in written_formats().values()
        if row is format or (format.name == row.family and row.suffix == format.suffix)
    ]
    return sorted(
        family, key=lambda row: (bool(entries(row.rows, paths)[1]), row.name != preferred)
    )


def format_for(model, suffix):
    """Return the name of a layout for files of a suffix that has a row for each variable.

    Prefer the layout that the model was read from. If no layout has all rows, return the first of
    this suffix.
    """
    options = options_of(model).resolved()
    paths = [variable.path for variable in model.weights]
    rows = [row for row in written_formats().values() if row.suffix == suffix]
    rows.sort(key=lambda row: row.name != getattr(model, "layout", None))
    return next((row.name for row in rows if _has_rows(row, options, paths)), rows[0].name)


def _has_rows(row, options, paths):
    """Return whether a layout can describe a model and has a row for each of its variables."""
    with contextlib.suppress(ValueError):
        check_describable(row, options)
        return not entries(row.rows, paths)[1]
    return False


def _format_for_suffix(format, path):
    """Return the layout of the same family for the suffix of a path, or else `format`."""
    rows = [row for row in written_formats().values() if format.name in (row.name, row.family)]
    return next((row for row in rows if str(path).endswith(row.suffix)), format)


def _target_path(path, format):
    """Return the expanded path; raise an error if it is not of the kind that the format writes."""
    path = pathlib.Path(path).expanduser()
    kind, fits = f"a {format.suffix} file", path.suffix == format.suffix and not path.is_dir()
    fits = fits and not path.name.endswith(WEIGHTS_SUFFIX)
    if format.config_files:
        kind = f"a directory or a {format.suffix} file"
        fits = fits or not (path.is_file() or path.suffix in FILE_SUFFIXES)
    if not fits:
        raise path_error(path, f"be {kind} for format={format.name!r}")
    return path


def _check_not_hidden(path, files):
    """Raise an error if other files in the directory would be read with, or instead of, the new."""
    reasons = {PROCESSOR: f"is read instead of {PREPROCESSOR}"} if PREPROCESSOR in files else {}
    if path.name == TF_MODEL:
        reasons |= dict.fromkeys((MODEL, SHARD_INDEX), f"is read instead of {TF_MODEL}")
    elif path.name == MODEL:
        reasons[TF_MODEL] = "TFViT would read with the new config.json"
        reasons[SHARD_INDEX] = "is the index of another model's shards"
    for name, reason in reasons.items():
        if path.with_name(name).exists():
            raise path_error(path.parent, f"be a directory without {name}, which {reason}")


def write_files(path, arrays, files, image_size, **metadata):
    """Write the arrays, and the JSON files next to them: all files, or none.

    `metadata` are strings for a `.safetensors` file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # The stack renames in reverse order: the configuration is in place before the weights.
        temporary = stack.enter_context(replacing(path))
        temporaries = {name: stack.enter_context(replacing(path.with_name(name))) for name in files}
        for name, contents in files.items():
            text = json.dumps(contents, indent=2) + "\n"
            temporaries[name].write_text(text, encoding="utf-8")
        WRITERS[path.suffix](temporary, arrays, image_size, **metadata)


def size_to_record(options):
    """Return the image size if the grid of patches is not square, otherwise `None`."""
    grid = options.grid
    return options.image_size if grid is not None and grid[0] != grid[1] else None


def values_of(model):
    """Return the values of a model's variables by path, in float32."""
    # Other projects cannot read NumPy's representation of bfloat16.
    return {
        v.path: keras.ops.convert_to_numpy(keras.ops.cast(v.value, "float32"))
        for v in model.weights
    }


def check_describable(format, options):
    """Raise `ValueError` if the project of a layout cannot have a model of these options."""
    if is_resnet(options):
        if not format.has_resnets:
            raise ValueError(f"`model` must be for {format.name!r} files. Received: a ResNet")
        return
    names = [name for name, value in OWN_OPTIONS.items() if getattr(options, name) != value]
    names += ["position_embedding"] * (options.position_embedding in OWN_EMBEDDINGS)
    names += format.refused(options)
    if names:
        raise _not_describable(format, options, names)


def arrays_of(values, options, format, image_spec):
    """Return the arrays of a file by name.

    Args:
        values: result of `values_of`.
        options: options of the model.
        format: the `Format` of the file.
        image_spec: the `ImageSpec` of the file.

    Raises:
        ValueError: if the layout cannot represent a part of the model.
    """
    values = dict(values)
    if KERNEL in values and not image_spec.is_centered:
        check_channels(image_spec, options.image_channels, "`normalization`")
        values |= release(values, image_spec)
    if not format.has_patch_bias(options):
        values = _without_patch_bias(format, values, options)
    values = _with_stored_positions(format, values, options)
    mapped, unmapped = entries(format.rows, values)
    if unmapped:
        listed = ", ".join(unmapped[:4]) + (" ..." if len(unmapped) > 4 else "")
        raise ValueError(
            f"`model` must have nothing that {format.name} files have no place for. "
            f"Received: a model with {listed}"
        )
    arrays = {
        entry.source: TRANSFORMS[entry.transform].write(
            [values[target] for target in entry.targets], getattr(options, "num_heads", None)
        )
        for entry in mapped
    }
    arrays |= format.constants(options)
    return {format.spell(name, options): array for name, array in arrays.items()}


def _without_patch_bias(format, values, options):
    """Return the values for a project whose patch projection has no bias."""
    bias = values.pop(BIAS, None)
    if bias is None or not bias.any():
        return values
    if options.position_embedding != "learned":
        raise _not_describable(format, options, ["patch_bias", "position_embedding"])
    # A bias adds the same vector to each patch: it can be added to their positions instead.
    is_patch = np.arange(values[POSITIONS].shape[1])[:, None] >= options.num_prefix_tokens
    return {**values, POSITIONS: values[POSITIONS] + is_patch * bias}


def _with_stored_positions(format, values, options):
    """Return the values, with the position embedding as the layout stores it."""
    if is_resnet(options):
        return values
    kind, described = options.position_embedding, format.position_embeddings
    becomes_learned = kind == "sincos2d" and kind not in described
    if ("learned" if becomes_learned else kind) not in described:
        raise _not_describable(format, options, ["position_embedding"])
    num_prefix = options.num_prefix_tokens
    if becomes_learned:
        table = sincos_table(options.grid, options.embedding_dim)
        prefix = np.zeros((1, num_prefix, table.shape[2]))
        values = {**values, POSITIONS: np.concatenate([prefix, table], axis=1).astype("float32")}
    elif kind != "learned":
        return values
    return format.store_positions(values, num_prefix)


def lost_options(arrays, configuration, options, format):
    """Return the options that a file does not record, and the values that are read instead.

    The value is `None` for an option that must be given when the file is read.

    Args:
        arrays: the arrays of the file by name.
        configuration: contents of the `config.json` and the `preprocessor_config.json` next to it.
        options: options of the model.
        format: the `Format` of the file.

    Raises:
        ValueError: if the file would be read as a different model.
    """
    archive = ArrayArchive(f"the {format.name} file", arrays, *configuration)
    num_heads, size = getattr(options, "num_heads", None), options.image_size
    try:
        checkpoint = CheckpointReader(archive, *recognize(archive, format.name))
        read = checkpoint.options(num_heads, size)
    except ValueError as error:
        names = [name for name in LISTED if hasattr(options, name)]
        raise _not_describable(format, options, names) from error
    if type(read) is not type(options):
        raise _not_describable(format, options, ["num_classes"])
    read_size = _read_option("image_size", checkpoint, num_heads)
    if checkpoint.shape_of(POSITIONS) is not None and read_size not in (None, size):
        raise _not_describable(format, options, ["image_size"])
    # The arrays contain these two.
    ignored = {"layer_scale", "patch_bias"}
    positions = getattr(options, "position_embedding", None)
    if positions == "sincos2d" and positions not in format.position_embeddings:
        # The sines and cosines are written as a learned table.
        ignored.add("position_embedding")
    compared = [name for name in (*options.names(), *options.names("size")) if name not in ignored]
    lost = {name: value for name, (_, value) in option_differences(options, read, compared).items()}
    logged = {"epsilon"}
    # The two GELUs differ little: only another activation is an error.
    if "gelu" in str(getattr(options, "activation", "")):
        logged.add("activation")
    if fatal := sorted(set(lost) - logged):
        raise _not_describable(format, options, fatal)
    if "num_heads" in checkpoint.options_without_config:
        read_heads = _read_option("num_heads", checkpoint, None, size)
        lost |= {"num_heads": read_heads} if read_heads != num_heads else {}
    is_recorded = checkpoint.records_image_size or size_to_record(options) is not None
    return lost if is_recorded or read_size == size else {**lost, "image_size": read_size}


def _read_option(name, checkpoint, num_heads, image_size=None):
    """Return an option as read with these arguments, or `None` if more arguments are needed."""
    with contextlib.suppress(ValueError):
        return getattr(checkpoint.options(num_heads, image_size), name)


def _not_describable(format, options, names):
    values = ", ".join(f"{name}={getattr(options, name)!r}" for name in names)
    return ValueError(
        f"`model` must be one that {format.name} files can describe. "
        f"Received: a model with {values}"
    )


def at_stored_size(model):
    """Return the model without LoRA and quantization; a model of any size at its `stored_size`."""
    takes_any_size = options_of(model).image_size is None
    model = with_float_kernels(model)
    return resize(model, stored_size(model)) if takes_any_size else model


class ModelArchive(ArrayArchive):
    """The variables of a model as an archive, which also has the `model`."""

    def __init__(self, model, path, config):
        super().__init__(path, {variable.path: variable for variable in model.weights}, config)
        self.model = model
        self.dtypes = {variable.path: variable.dtype for variable in model.weights}

    def read(self, name):
        """Return the value of the variable of that path."""
        return keras.ops.convert_to_numpy(self._arrays[name].value)
