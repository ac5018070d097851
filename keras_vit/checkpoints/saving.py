"""Models into checkpoint files that other projects read."""

import contextlib
import json
import os
import pathlib

import keras
import numpy as np

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import ArrayArchive, read_config
from keras_vit.checkpoints.archives.npz import write_npz
from keras_vit.checkpoints.formats import FORMATS, POSITIONS, huggingface, timm
from keras_vit.checkpoints.grids import num_prefix_tokens
from keras_vit.checkpoints.positions import fold_prefix
from keras_vit.checkpoints.reader import Checkpoint
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import entries
from keras_vit.core.arguments import check_choice
from keras_vit.core.class_names import check_class_names
from keras_vit.core.files import replacing
from keras_vit.layers.tokens import sincos_table
from keras_vit.models.describe import describe
from keras_vit.models.options import DROPOUT_OPTIONS, defaults_of, is_resnet, token_grid_of
from keras_vit.models.weights import check_finite

CONFIGURATIONS = {"timm": timm.configuration, "huggingface": huggingface.configuration}
WEIGHT_FILES = (".npz", ".safetensors")
# Suffixes that are not of directories.
OTHER_FILES = (".npz", ".keras", ".h5", ".json", ".bin", ".pt", ".pth", ".txt")
# Where a file's names are not those of the weight map.
FILE_NAMES = {
    "huggingface": huggingface.file_name,
    "big_vision": lambda name, options: f"params/{name}",
}
# Not of the trained function, or a number that the arrays have replaced.
NOT_COMPARED = (*DROPOUT_OPTIONS, "layer_scale")


def save_checkpoint(model, path, format, class_names=None, normalization=((0.5,), (0.5,))):
    """Writes a model's weights to a file that another project reads.

    Files are written beside and renamed: what was at `path` stays until the new one is complete.

    Args:
        model: a model of this package.
        path: where to: for `"google"`, `"big_vision"` and `"big_transfer"` an `.npz` file; for
            `"timm"` and `"huggingface"` a directory, which gets `model.safetensors`, `config.json`
            and what else the project has there, or a `.safetensors` file of the weights alone.
        format: `"google"` (vit_jax's released layout), `"big_vision"`, `"timm"` or `"huggingface"`;
            `"big_transfer"` for BiT.
        class_names: names of the classes, for the `config.json` of timm and transformers. A warning
            says it where the file has no place for them.
        normalization: `(mean, standard_deviation)` of the pixels in [0, 1] that the model takes,
            each a tuple of one number or of one for each channel, for the configuration of timm and
            transformers.

    Raises:
        ValueError: if the format has no place for something in the model, such as register tokens,
            a weight is not finite, `path` is of another kind, or there are other than as many
            different names as classes.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.save_checkpoint(model, tmp_path / "tiny.npz", format="google")
    >>> keras_vit.from_checkpoint(tmp_path / "tiny.npz").count_params() == model.count_params()
    True
    """
    check_choice("format", format, tuple(FORMATS))
    path = _check_path(path, format)
    options = describe(model)
    if class_names is not None:
        class_names = check_class_names(class_names, num_classes=options["num_classes"])
    if format == "big_vision" and options.get("resnet_stages") is not None:
        raise ValueError(
            "`model` must be one that big_vision has, and it has no hybrids. "
            f"Received: a hybrid with resnet_stages={options['resnet_stages']}"
        )
    check_finite(model, dtype="float32")
    arrays = _arrays(model, options, format)
    files = {}
    if path.suffix not in WEIGHT_FILES:
        files = CONFIGURATIONS[format](options, arrays, class_names, normalization)
        path = path / "model.safetensors"
    elif class_names is not None:
        logger.warning("%s does not record the names of the classes", path)
    # Weights alone are read with the configuration that lies beside them.
    beside = read_config(path.parent) if not files and path.suffix != ".npz" else {}
    try:
        _check_read_back(arrays, files.get("config.json", beside), options, format)
    except ValueError as error:
        if not beside:
            raise
        raise ValueError(
            "`path` must not be next to the config.json of another model, with which the weights "
            f"would be read. Received: path={str(path)!r} ({error})"
        ) from error
    _write(path, arrays, files, _size_to_record(options))


def _check_path(path, format):
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"`path` must be a path. Received: path={path!r}")
    path = pathlib.Path(path).expanduser()
    if format in ("google", "big_vision", "big_transfer"):
        kind, fits = "an .npz file", path.suffix == ".npz" and not path.is_dir()
    else:
        kind = "a directory or a .safetensors file"
        is_other_file = path.is_file() or path.suffix in OTHER_FILES
        fits = not path.is_dir() if path.suffix == ".safetensors" else not is_other_file
    if not fits:
        raise ValueError(
            f"`path` must be {kind} for format={format!r}. Received: path={str(path)!r}"
        )
    return path


def _size_to_record(options):
    """The image size of a model whose grid of patches is not square, or `None`."""
    grid = token_grid_of(options)
    return options["image_size"] if grid is not None and grid[0] != grid[1] else None


def _write(path, arrays, files, image_size):
    """Writes the arrays, and files of JSON beside them: all of them, or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            # The configuration is in its place before the weights that it is for.
            parts = {name: stack.enter_context(replacing(path.with_name(name))) for name in files}
            part = stack.enter_context(replacing(path))
            for name, contents in files.items():
                text = json.dumps(contents, indent=2) + "\n"
                parts[name].write_text(text, encoding="utf-8")
            if path.suffix == ".npz":
                write_npz(part, arrays, image_size)
            else:
                _save_safetensors(arrays, part)
    except OSError as error:
        raise ValueError(
            f"`path` must be where files can be written. Received: path={str(path)!r} ({error})"
        ) from error


def _save_safetensors(arrays, path):
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ValueError(
            "writing .safetensors needs the package safetensors: "
            f"pip install 'keras-vit[convert]'. Received: path={str(path)!r}"
        ) from error
    # Of a transposed array, safetensors would store the bytes as they lie.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.touch()
    mode = path.stat().st_mode
    save_file(arrays, path, metadata={"format": "pt"})
    # safetensors lets only the owner read its files.
    path.chmod(mode)


def _arrays(model, options, format):
    """The arrays of the file, by name."""
    # No other project reads what NumPy makes of bfloat16.
    values = {
        v.path: keras.ops.convert_to_numpy(keras.ops.cast(v.value, "float32"))
        for v in model.weights
    }
    values = _with_positions_of(format, values, options)
    found, without_row = entries(FORMATS[format].rows, values)
    if without_row:
        listed = ", ".join(without_row[:4]) + (" ..." if len(without_row) > 4 else "")
        raise ValueError(
            f"`model` must have nothing that {format} files have no place for. "
            f"Received: a model with {listed}"
        )
    arrays = {
        entry.source: TRANSFORMS[entry.transform].write([values[t] for t in entry.targets])
        for entry in found
    }
    spell = FILE_NAMES.get(format, lambda name, options: name)
    return {spell(name, options): array for name, array in arrays.items()}


def _with_positions_of(format, values, options):
    """The values with those rows of the position embedding that the format has."""
    if is_resnet(options):
        return values
    if options["position_embedding"] not in ("learned", "sincos2d"):
        raise _not_describable(format, options, ["position_embedding"])
    num_prefix = num_prefix_tokens(options)
    if options["position_embedding"] == "sincos2d":
        if format == "big_vision":
            return values
        table = sincos_table(token_grid_of(options), options["embedding_dim"])
        prefix = np.zeros((1, num_prefix, table.shape[2]))
        values = {**values, POSITIONS: np.concatenate([prefix, table], axis=1).astype("float32")}
    table = values[POSITIONS]
    has_zero_prefix = not table[:, :num_prefix].any()
    if format in ("big_vision", "timm") and has_zero_prefix:
        return {**values, POSITIONS: table[:, num_prefix:]}
    if format == "big_vision" and "class_token/token" in values:
        token, table = fold_prefix(values["class_token/token"], table)
        return {**values, "class_token/token": token, POSITIONS: table}
    return values


def _check_read_back(arrays, config, options, format):
    """Raises if the file would be read as another model than the one written."""
    archive = ArrayArchive(f"the {format} file", arrays, config)
    naming = FORMATS[format].find(archive.shapes)
    if naming is None:
        raise ValueError(
            f"`model` must be one that {format} files hold. Received: a ResNet, "
            "for which there are 'big_vision' and, for BiT, 'big_transfer'"
        )
    checkpoint = Checkpoint(archive, FORMATS[format], naming)
    compared = set(options) - set(NOT_COMPARED)
    if format != "big_vision":
        # Sines and cosines become a table like a learned one.
        compared.discard("position_embedding")
    try:
        told = options.get("num_heads"), options["image_size"]
        read = checkpoint.options(*told)
        read = {**defaults_of(read), **read}
    except ValueError as error:
        named = ("pooling", "class_token", "representation_size", "num_classes", "activation")
        raise _not_describable(format, options, [n for n in named if n in options]) from error
    if checkpoint.shape_of(POSITIONS) is not None:
        _check_size_told(checkpoint, options, format)
    different = sorted(name for name in compared if options[name] != read[name])
    fatal = [name for name in different if name not in ("activation", "epsilon")]
    if fatal:
        raise _not_describable(format, options, fatal)
    if not config and format in CONFIGURATIONS:
        different += _untold_heads(checkpoint, options, read)
    if not checkpoint.tells_image_size:
        read["image_size"] = checkpoint.options(told[0])["image_size"]
        different += ["image_size"] if read["image_size"] != options["image_size"] else []
    for name in different:
        logger.warning(
            "%s files do not tell %s: %r becomes %r where this one is read",
            format,
            name,
            options[name],
            read[name],
        )


def _untold_heads(checkpoint, options, read):
    """`["num_heads"]` if weights alone are read with other heads than the model's."""
    try:
        read["num_heads"] = checkpoint.options(None, options["image_size"])["num_heads"]
    except ValueError:
        # They are asked for.
        return []
    return ["num_heads"] if read["num_heads"] != options["num_heads"] else []


def _check_size_told(checkpoint, options, format):
    """Raises if the file would be taken for one of another grid when no image size is given."""
    try:
        size = checkpoint.options(options["num_heads"])["image_size"]
    except ValueError:
        # It is asked for.
        return
    if size != options["image_size"]:
        raise _not_describable(format, options, ["image_size"])


def _not_describable(format, options, names):
    values = ", ".join(f"{name}={options[name]!r}" for name in names)
    return ValueError(
        f"`model` must be one that {format} files can describe. Received: a model with {values}"
    )
