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
from keras_vit.checkpoints.transforms import BIAS, KERNEL, TRANSFORMS, check_channels, undo_absorb
from keras_vit.checkpoints.weight_map import POSITIONS, entries
from keras_vit.core.arguments import check_choice, path_error
from keras_vit.core.files import replacing
from keras_vit.core.text import check_class_names
from keras_vit.layers.positions import sincos_table
from keras_vit.models.image_model import image_spec_of, options_of
from keras_vit.models.keras_files import WEIGHTS_SUFFIX, check_finite
from keras_vit.models.options import is_resnet, option_differences
from keras_vit.models.structure import predicts_values, stored_size
from keras_vit.models.surgery import resize, with_float_kernels

# Options that only this package has, and the values that correspond to models of other projects.
OWN_OPTIONS = {"position_placement": "stem", "axial": False, "unit_norm": False}
# Position embeddings that no other project has.
OWN_EMBEDDINGS = ("learned2d", "relative")
# Options that an error names if the written file could not be read as a model.
LISTED = ("pooling", "class_token", "representation_size", "num_classes", "activation", "qkv_bias")


def save_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    format: str | None = None,
    class_names: Sequence[str] | None = None,
    normalization: tuple | None = None,
) -> None:
    """Write the weights of a model to a file that another project reads.

    An existing file is replaced when the new file is complete. A model that takes images of any
    size (`image_size=None`) is written at the image size of its position embeddings.

    Args:
        model: a model of this package.
        path: path of the `.npz` file to write. For timm and transformers, path of a directory, for
            `model.safetensors`, `config.json` and the other files of the project; or path of a
            `.safetensors` file, which is written without JSON files. For TensorFlow models of
            transformers before version 5, path of a directory or of an `.h5` file.
        format: name of the layout, such as `"google"` (vit_jax), `"timm"`, `"huggingface"` or
            `"huggingface_tf"`, a key of `keras_vit.checkpoints.formats.FORMATS`. `"timm"` and
            `"huggingface"` stand for all layouts of the project (ViT, DeiT, DINOv2, CLIP and
            others). The model is then written in the layout that it was read from, or else in the
            first layout that can describe it. `None` stands for all layouts with the suffix of
            `path`; to write a directory, give a name.
        class_names: names of the classes, for the `config.json`; `None` for `model.class_names`. A
            warning is logged if names are given and no `config.json` is written.
        normalization: `(mean, standard_deviation)` of pixels in [0, 1], for the patch projection
            and the `config.json` of timm and transformers. Each is a tuple with one number, or with
            one number per channel. `None` for the normalization of `ImageModel.image_spec`. For a
            file without new JSON files, `None` stands for the normalization that existing JSON
            files in its directory record, or else for images in [-1, 1]. `.npz` files always take
            images in [-1, 1], and torchvision's files images normalized with ImageNet's mean and
            deviation.

    Raises:
        ValueError: if the layout cannot represent a part of the model, such as register tokens; a
            weight is not finite; `path` does not fit the layout; `path` is a directory with other
            weights, which would be read with the new `config.json`; or the class names are not
            unique, or their number is not the number of classes.

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
    # A file that is written without JSON files will be read with the JSON files next to it.
    uses_existing = format.config_files and not is_directory
    existing = read_configuration(path) if uses_existing else ({}, {})
    image_spec = image_spec_of(model)
    recorded = image_spec
    if not is_directory:
        recorded = recorded_images(*existing, path) or format.image_spec
    if normalization is None or not format.config_files:
        normalization = recorded.normalization
    mean, deviation = normalization
    image_spec = dataclasses.replace(image_spec, mean=mean, deviation=deviation)
    if is_directory:
        names = class_names or getattr(model, "class_names", None)
        names = names and list(names)
        format, arrays, files = as_files(model, options, format, image_spec, names)
        path = path / format.name_in_directory
        _check_no_conflict(path, files)
    else:
        if class_names is not None:
            logger.warning("%s does not record the names of the classes", path)
        try:
            format, arrays, files = as_files(model, options, format, image_spec, None, existing)
        except ValueError as error:
            if not existing[0]:
                raise
            raise ValueError(
                "`path` must not be next to the config.json of another model, because the weights "
                f"would be read with this config.json. Received: path={str(path)!r} ({error})"
            ) from error
    _record_thresholds(model, format, files, existing[0], path)
    json_files = [files.get(name, {}) for name in CONFIGURATION] if is_directory else existing
    warn_of_lost_preparation(*json_files, path, image_spec, options.image_size, format.image_spec)
    write_files(path, arrays, files, size_to_record(options))


def _record_thresholds(model, format, files, existing_config, path):
    """Record in the `config.json` that a model is multi-label, or warn if this is impossible.

    `existing_config` is the `config.json` that is already next to a file of weights, or `{}`.
    """
    thresholds, multi_label = getattr(model, "thresholds", None), format.multi_label
    if predicts_values(model):
        logger.warning("%s does not record that the model predicts values", path)
    is_recorded = bool(multi_label) and multi_label.items() <= existing_config.items()
    if thresholds is None:
        if is_recorded:
            raise ValueError(
                "`path` must not be next to the config.json of a multi-label model, because the "
                f"weights would be read with it. Received: path={str(path)!r}"
            )
        return
    config = CONFIGURATION[0]
    if multi_label and config in files:
        files[config] |= multi_label
        is_recorded = True
    if not is_recorded:
        logger.warning(
            "%s does not record that the model is multi-label: sigmoid probabilities and "
            "`model.thresholds` are lost",
            path,
        )
    elif set(thresholds) != {0.5}:
        logger.warning("%s does not record `model.thresholds`: they are read as 0.5", path)


def as_files(model, options, format, image_spec, class_names=None, existing=None):
    """Return the layout in which a model is written, the arrays, and the JSON files by name.

    The layout is the first of `_candidates` that can describe the model. `existing` are the
    contents of the JSON files that are already next to a file of weights; `None` to make new ones.
    """
    values, errors = values_of(model), []
    for layout in _candidates(format, values, getattr(model, "layout", None)):
        try:
            check_describable(layout, options)
            arrays, files = arrays_of(values, options, layout, image_spec), {}
            if existing is None:
                recorded = options.replace(image_size=image_spec.full_size(options.image_size))
                files = layout.configure(recorded, arrays, class_names, image_spec)
            json_files = existing or [files.get(name, {}) for name in CONFIGURATION]
            lost = lost_options(arrays, json_files, options, layout)
        except ValueError as error:
            errors.append((layout.name == getattr(model, "layout", None), error))
            continue
        for name, value in lost.items():
            text = f"{layout.name} files do not record {name}: "
            if value is None:
                text += f"give {name}={getattr(options, name)!r} when the file is read"
            else:
                text += f"{getattr(options, name)!r} becomes {value!r} when the file is read"
            logger.warning("%s", text)
        return layout, arrays, files
    # Prefer the error of the layout that the model was read from.
    raise max(errors, key=lambda error: error[0])[1]


def _candidates(format, paths, preferred):
    """Return `format` and the other layouts of its family with the same suffix, the best first.

    First come layouts whose weight map has a row for each variable of a model. Among equals, the
    layout named `preferred` is first.
    """
    family = [
        layout
        for layout in written_formats().values()
        if layout is format or (format.name == layout.family and layout.suffix == format.suffix)
    ]
    return sorted(
        family, key=lambda layout: (bool(entries(layout.rows, paths)[1]), layout.name != preferred)
    )


def format_for(model, suffix):
    """Return the name of the layout in which to write a model to a file with this suffix.

    The layout must be able to describe the model, with a row of its weight map for each variable.
    Prefer the layout that the model was read from. If no layout is able, return the first layout.
    """
    options = options_of(model).resolved()
    paths = [variable.path for variable in model.weights]
    layouts = [layout for layout in written_formats().values() if layout.suffix == suffix]
    layouts.sort(key=lambda layout: layout.name != getattr(model, "layout", None))
    return next((x for x in layouts if _has_rows(x, options, paths)), layouts[0]).name


def _has_rows(layout, options, paths):
    """Return whether a layout can describe a model, and has a row for each of its variables."""
    with contextlib.suppress(ValueError):
        check_describable(layout, options)
        return not entries(layout.rows, paths)[1]
    return False


def _format_for_suffix(format, path):
    """Return the layout in the family of `format` with the suffix of a path, or else `format`."""
    layouts = [x for x in written_formats().values() if format.name in (x.name, x.family)]
    return next((layout for layout in layouts if str(path).endswith(layout.suffix)), format)


def _target_path(path, format):
    """Return the expanded path; raise an error if the format cannot be written to such a path."""
    path = pathlib.Path(path).expanduser()
    kind, fits = f"a {format.suffix} file", path.suffix == format.suffix and not path.is_dir()
    fits = fits and not path.name.endswith(WEIGHTS_SUFFIX)
    if format.config_files:
        kind = f"a directory or a {format.suffix} file"
        fits = fits or not (path.is_file() or path.suffix in FILE_SUFFIXES)
    if not fits:
        raise path_error(path, f"be {kind} for format={format.name!r}")
    return path


def _check_no_conflict(path, files):
    """Raise an error if existing files would be read with the new files or instead of them."""
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
    """Write the arrays and the JSON files next to them; if one cannot be written, write none.

    `metadata` are strings that are stored in a `.safetensors` file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # The stack renames in reverse order, so that weights never appear without their JSON files.
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
    """Raise a `ValueError` if no model of the layout's project can have these options."""
    if is_resnet(options):
        if not format.has_resnets:
            raise ValueError(f"`model` must be a ViT for {format.name!r} files. Received: a ResNet")
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
    # The patches of a hybrid are features of a ResNet, not pixels.
    has_pixels = KERNEL in values and options.resnet_stages is None
    if has_pixels and not image_spec.is_centered:
        check_channels(image_spec, options.image_channels, "`normalization`")
        values |= undo_absorb(values, image_spec)
    if not format.has_patch_bias(options):
        values = _without_patch_bias(format, values, options)
    values = _with_stored_positions(format, values, options)
    mapped, unmapped = entries(format.rows, values)
    if unmapped:
        listed = ", ".join(unmapped[:4]) + (" ..." if len(unmapped) > 4 else "")
        raise ValueError(
            f"`model` must have only variables that {format.name} files can hold. "
            f"Received: a model with {listed}"
        )
    arrays = {
        entry.source: TRANSFORMS[entry.transform].write(
            [values[target] for target in entry.targets], getattr(options, "num_heads", None)
        )
        for entry in mapped
    }
    arrays |= format.constants(options)
    return {format.written_name(name, options): array for name, array in arrays.items()}


def _without_patch_bias(format, values, options):
    """Return the values for a project whose patch projection has no bias."""
    bias = values.pop(BIAS, None)
    if bias is None or not bias.any():
        return values
    if options.position_embedding != "learned":
        raise _not_describable(format, options, ["patch_bias", "position_embedding"])
    # The bias is the same for all patches, so it can be added to their positions instead.
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
    """Return the options that a file does not record, with the values that readers assume.

    The value is `None` for an option that must be given when the file is read.

    Args:
        arrays: the arrays of the file by name.
        configuration: contents of the file's `config.json` and `preprocessor_config.json`.
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
    # The arrays show whether a model has a LayerScale and a bias of the patch projection.
    ignored = {"layer_scale", "patch_bias"}
    positions = getattr(options, "position_embedding", None)
    if positions == "sincos2d" and positions not in format.position_embeddings:
        # The sines and cosines are written as a learned table.
        ignored.add("position_embedding")
    compared = [name for name in (*options.names(), *options.names("size")) if name not in ignored]
    lost = {name: value for name, (_, value) in option_differences(options, read, compared).items()}
    logged = {"epsilon"}
    # The two GELUs differ little, so reading the wrong GELU is not an error.
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
    """Return an option of the model in a file, or `None` if more arguments are needed."""
    with contextlib.suppress(ValueError):
        return getattr(checkpoint.options(num_heads, image_size), name)


def _not_describable(format, options, names):
    values = ", ".join(f"{name}={getattr(options, name)!r}" for name in names)
    return ValueError(
        f"`model` must be one that {format.name} files can describe. "
        f"Received: a model with {values}"
    )


def at_stored_size(model):
    """Return a model without LoRA and quantization, and with a fixed image size.

    A model that takes images of any size is resized to its `stored_size`.
    """
    takes_any_size = options_of(model).image_size is None
    model = with_float_kernels(model)
    return resize(model, stored_size(model)) if takes_any_size else model


class ModelArchive(ArrayArchive):
    """An archive of the variables of a model; its attribute `model` is the model."""

    def __init__(self, model, path, config):
        super().__init__(path, {variable.path: variable for variable in model.weights}, config)
        self.model = model
        self.dtypes = {variable.path: variable.dtype for variable in model.weights}

    def read(self, name):
        """Return the value of the variable with this path."""
        return keras.ops.convert_to_numpy(self._arrays[name].value)
