"""Models written to checkpoint files that other projects read."""

import contextlib
import json
import os
import pathlib
from collections.abc import Sequence

import keras

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import FILE_SUFFIXES, WRITERS
from keras_vit.checkpoints.configuration import (
    CONFIGURATION,
    MODEL,
    PREPROCESSOR,
    PROCESSOR,
    SHARD_INDEX,
    TF_MODEL,
    read_configuration,
)
from keras_vit.checkpoints.configuration.images import (
    recorded_normalization,
    warn_of_lost_resizing,
)
from keras_vit.checkpoints.formats import written_formats
from keras_vit.checkpoints.model_archive import at_stored_size
from keras_vit.checkpoints.stored import (
    arrays_of,
    check_describable,
    lost_options,
    size_to_record,
    values_of,
)
from keras_vit.checkpoints.weight_map import entries
from keras_vit.core.arguments import check_choice, path_error
from keras_vit.core.class_names import check_class_names
from keras_vit.core.files import replacing
from keras_vit.core.resizing import WHOLE_IMAGE
from keras_vit.models.base import CENTERED
from keras_vit.models.files import WEIGHTS_SUFFIX, check_finite
from keras_vit.models.introspection import options_of


def save_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    format: str | None = None,
    class_names: Sequence[str] | None = None,
    normalization: tuple | None = None,
) -> None:
    """Write the weights of a model to a file that another project reads.

    The file at `path` is replaced when the new one is complete. A model of any image size is
    written at the size of its position embeddings.

    Args:
        model: a model of this package.
        path: path of the `.npz` file to write; or, for timm and transformers, of the directory of
            `model.safetensors`, `config.json` and the other files of the project, or of a
            `.safetensors` file for the weights alone. For transformers before version 5 in
            TensorFlow it is a directory or an `.h5` file too.
        format: name of the layout, such as `"google"` (vit_jax), `"timm"`, `"huggingface"` or
            `"huggingface_tf"`, a key of `keras_vit.checkpoints.formats.FORMATS`. `"huggingface"`
            and `"timm"` are the layout of the project that the model was read from, or else the
            first one that can describe it: ViT, DeiT, DINOv2, CLIP and others. `None` for the
            layout of the path's suffix that the model was read from, or else the first one that
            can describe it; a directory has no suffix, and needs a name.
        class_names: names of the classes, for the `config.json`; `None` for those of the model. If
            they are given and there is no such file, a warning is logged.
        normalization: `(mean, standard_deviation)` of pixels in [0, 1], each a tuple of one number
            or of one per channel, with which the files of timm and transformers take images: their
            patch projection and their configuration are for it. `None` for that of the model's
            own files, `ImageModel.normalization`; for weights alone it is that which is recorded
            next to them, or the images are in [-1, 1]. The `.npz` layouts always take these.

    Raises:
        ValueError: if the layout cannot represent something in the model, such as register tokens;
            a weight is not finite; `path` is of another kind, or a directory with weights that
            would be read with the new `config.json`; or the class names are not as many different
            names as classes.

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
    if format in ("hf", "transformers"):
        raise ValueError(
            f"`format` must be 'huggingface' for transformers. Received: format={format!r}"
        )
    check_choice("format", format, tuple(formats))
    format = _format_of(formats[format], path)
    path = _check_path(path, format)
    model = at_stored_size(model)
    options = options_of(model)
    if class_names is not None:
        class_names = check_class_names(class_names, num_classes=options["num_classes"])
    check_finite(model, dtype="float32")
    is_directory = path.suffix != format.suffix
    # Weights alone are read with the configuration that is next to them.
    has_present = format.config_files and not is_directory
    present = read_configuration(path.parent) if has_present else ({}, {})
    if normalization is None:
        own = getattr(model, "normalization", CENTERED)
        normalization = own if is_directory else recorded_normalization(*present, path)
    normalization = (format.config_files and normalization) or CENTERED
    resizing = getattr(model, "resizing", WHOLE_IMAGE)
    if is_directory:
        names = class_names or getattr(model, "class_names", None)
        facts = names and list(names), normalization, resizing
        format, arrays, files = stored_in(model, options, format, normalization, facts=facts)
        path = path / format.name_in_directory
        _check_not_hidden(path, files)
    else:
        if class_names is not None:
            logger.warning("%s does not record the names of the classes", path)
        try:
            format, arrays, files = stored_in(model, options, format, normalization, present)
        except ValueError as error:
            if not present[0]:
                raise
            raise ValueError(
                "`path` must not be next to the config.json of another model, with which the "
                f"weights would be read. Received: path={str(path)!r} ({error})"
            ) from error
    _record_thresholds(model, format, files, present[0], path)
    written = [files.get(name, {}) for name in CONFIGURATION] if is_directory else present
    warn_of_lost_resizing(*written, path, resizing, options["image_size"])
    write_files(path, arrays, files, size_to_record(options))


def _record_thresholds(model, format, files, present, path):
    """Record in the `config.json` that a model is multi-label, or log what is lost.

    `present` is the `config.json` next to weights alone.
    """
    thresholds, entries = getattr(model, "thresholds", None), format.several_labels
    is_recorded = bool(entries) and entries.items() <= present.items()
    if thresholds is None:
        if is_recorded:
            raise ValueError(
                "`path` must not be next to the config.json of a multi-label model, with which the "
                f"weights would be read. Received: path={str(path)!r}"
            )
        return
    config = CONFIGURATION[0]
    if entries and config in files:
        files[config] |= entries
        is_recorded = True
    if not is_recorded:
        logger.warning(
            "%s does not record that an image may have several labels: the probabilities are "
            "sigmoids, and `model.thresholds` are lost",
            path,
        )
    elif set(thresholds) != {0.5}:
        logger.warning("%s does not record `model.thresholds`: they are read as 0.5", path)


def stored_in(model, options, format, normalization, present=({}, {}), facts=None):
    """Return the first layout of a project that can describe a model, its arrays and JSON files.

    `present` is the configuration next to weights alone, `facts` are the last arguments of
    `Format.configure` for a directory.
    """
    values, errors = values_of(model), []
    for row in _layouts(format, values, getattr(model, "layout", None)):
        try:
            check_describable(row, options)
            arrays, files = arrays_of(values, options, row, normalization), {}
            if facts is not None:
                *_, resizing = facts
                recorded = {**options, "image_size": resizing.whole(options["image_size"])}
                files = row.configure(recorded, arrays, *facts)
                present = tuple(files.get(name, {}) for name in CONFIGURATION)
            lost = lost_options(arrays, present, options, row)
        except ValueError as error:
            errors.append((row.name == getattr(model, "layout", None), error))
            continue
        for name, value in lost.items():
            text = f"{row.name} files do not record {name}: "
            if value is None:
                text += f"give {name}={options[name]!r} when this one is read"
            else:
                text += f"{options[name]!r} becomes {value!r} when this one is read"
            logger.warning("%s", text)
        return row, arrays, files
    # That of the layout of the model, or else the first.
    raise max(errors, key=lambda error: error[0])[1]


def _layouts(format, paths, preferred):
    """Return the layouts in the files of `format` that a name means: all those of a family.

    Those that have a place for all of a model's variables come first, `preferred`, the name of a
    layout, before others.
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
    """Return the name of a layout in files of a suffix that has a place for all weights.

    It is the layout that the model was read from, if possible, or else the first one. If there is
    none, return the first layout of this suffix.
    """
    options, paths = options_of(model), [variable.path for variable in model.weights]
    rows = [row for row in written_formats().values() if row.suffix == suffix]
    rows.sort(key=lambda row: row.name != getattr(model, "layout", None))
    return next((row.name for row in rows if _has_place(row, options, paths)), rows[0].name)


def _has_place(row, options, paths):
    """Return whether a layout has a place for the variables of these paths."""
    with contextlib.suppress(ValueError):
        check_describable(row, options)
        return not entries(row.rows, paths)[1]
    return False


def _format_of(format, path):
    """Return the layout of the same project in files of the path's suffix, if there is one."""
    rows = [row for row in written_formats().values() if format.name in (row.name, row.family)]
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
        raise path_error(path, f"be {kind} for format={format.name!r}")
    return path


def _check_not_hidden(path, files):
    """Raise an error if files that stay in the directory would be taken for those of the model."""
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

    `metadata` are strings that a `.safetensors` file holds, too.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            # The configuration is in its place before the weights.
            parts = {name: stack.enter_context(replacing(path.with_name(name))) for name in files}
            part = stack.enter_context(replacing(path))
            for name, contents in files.items():
                text = json.dumps(contents, indent=2) + "\n"
                parts[name].write_text(text, encoding="utf-8")
            WRITERS[path.suffix](part, arrays, image_size, **metadata)
    except OSError as error:
        raise path_error(path, "be where files can be written", f" ({error})") from error
