"""The arrays of files other than `.npz`, and of models in memory; all have the same methods."""

import contextlib
import json
import pathlib

import keras

from keras_vit.checkpoints.archives.npz import NpzArchive, as_float32, what_it_is
from keras_vit.models.files import load_unchecked

SHARD_INDEX = "model.safetensors.index.json"
# What safetensors calls the dtypes that weights are stored in.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class SafetensorsArchive:
    """A `.safetensors` file, or several that an index lists, with a `config.json` beside.

    Attributes:
        path: of the file or the directory.
        shapes: shape of each array by name.
        dtypes: names of the dtypes that the arrays are stored in, by name.
        config: contents of the `config.json`, or nothing.
    """

    is_mapped = True

    def __init__(self, path):
        self.path = path
        self._exit = contextlib.ExitStack()
        files, listed = _shards(path)
        self.config = read_config(files[0].parent)
        self.normalisation = read_normalisation(files[0].parent, self.config)
        self._files = {}
        try:
            for file in files:
                self._add(file)
            self._check_index(listed)
        except ValueError:
            self.close()
            raise
        slices = {name: tensors.get_slice(name) for name, tensors in self._files.items()}
        self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        dtypes = {name: part.get_dtype() for name, part in slices.items()}
        self.dtypes = {name: DTYPES.get(dtype, dtype) for name, dtype in dtypes.items()}

    def _add(self, file):
        tensors = self._open(file)
        twice = set(tensors.keys()) & set(self._files)
        if twice:
            raise ValueError(
                f"`path` must hold each array once. Received: path={str(self.path)!r}, "
                f"where {sorted(twice)[0]!r} is in two files"
            )
        self._files.update(dict.fromkeys(tensors.keys(), tensors))

    def _check_index(self, listed):
        absent = [name for name in listed if name not in self._files]
        if absent:
            raise ValueError(
                "`path` must hold each array of its index. "
                f"Received: path={str(self.path)!r}, without {absent[0]!r}"
            )

    def _open(self, file):
        try:
            import safetensors
        except ImportError as error:
            raise ValueError(
                f"{str(self.path)!r} needs the package safetensors: "
                "pip install 'keras-vit[convert]'"
            ) from error
        try:
            return self._exit.enter_context(safetensors.safe_open(file, framework="numpy"))
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(
                f"`path` must be a complete .safetensors file. Received: path={str(file)!r}, "
                f"{what_it_is(file) or f'which cannot be read: {error}'}"
            ) from error

    def read(self, name):
        """The array of that name in float32."""
        try:
            tensor = self._files[name].get_tensor(name)
        # NumPy lacks some of its dtypes.
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"the array {name!r} must hold floating-point numbers that NumPy has. "
                f"Received: dtype={self.dtypes[name]}"
            ) from error
        return as_float32(name, tensor)

    def close(self):
        self._exit.close()


class ModelArchive:
    """The variables of a model in memory, in place of a file.

    Attributes:
        path: what to call it in an error.
        model: the model.
        shapes: shape of each variable by path.
        config: nothing.
    """

    is_mapped = True

    def __init__(self, model, path=None):
        self.path = path or model.name
        self.model = model
        self.config = {}
        self._variables = {variable.path: variable for variable in model.weights}
        self.shapes = {path: tuple(v.shape) for path, v in self._variables.items()}
        self.dtypes = {path: v.dtype for path, v in self._variables.items()}

    def read(self, name):
        """The value of the variable of that path."""
        return keras.ops.convert_to_numpy(self._variables[name].value)

    def close(self):
        pass


class ArrayArchive:
    """Arrays in memory, in place of a file.

    Attributes:
        path: what to call it in an error.
        shapes: shape of each array by name.
        config: settings that come with the arrays.
    """

    is_mapped = True

    def __init__(self, path, arrays, config):
        self.path = path
        self.config = config
        self._arrays = arrays
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}

    def read(self, name):
        """The array of that name."""
        return as_float32(name, self._arrays[name])

    def close(self):
        pass


def open_archive(path):
    """The archive at a path: `.npz`, `.safetensors` (also sharded, or a directory) or `.keras`.

    Args:
        path: a `pathlib.Path`.

    Returns:
        An archive, to be closed.

    Raises:
        ValueError: if there is nothing, or nothing that is read here.
    """
    if not path.exists():
        raise ValueError(f"`path` must be an existing file. Received: path={str(path)!r}")
    if path.suffix == ".keras":
        # Arrays are checked when they are read.
        return ModelArchive(load_unchecked(path), path)
    if path.is_dir() or path.suffix == ".safetensors" or path.name == SHARD_INDEX:
        return SafetensorsArchive(path)
    if path.suffix == ".npz":
        return NpzArchive(path)
    if path.name.endswith(".weights.h5"):
        raise ValueError(
            "`path` must be a file that tells its model: `load_checkpoint` reads .weights.h5 into "
            f"one. Received: path={str(path)!r}"
        )
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        raise ValueError(
            "`path` must be a file that can be read without unpickling: save the weights as "
            f".safetensors. Received: path={str(path)!r}"
        )
    raise ValueError(
        "`path` must be a .npz, .safetensors or .keras file, or a directory with "
        f"model.safetensors. Received: path={str(path)!r}"
    )


def _shards(path):
    """The files that hold the arrays of a file, an index or a directory, and the index's names."""
    if path.suffix == ".safetensors":
        return [path], ()
    directory = path if path.is_dir() else path.parent
    file, index = directory / "model.safetensors", directory / SHARD_INDEX
    # As in transformers, an index that an earlier model has left does not count.
    if path != index and file.exists():
        return [file], ()
    if not index.exists():
        raise ValueError(
            "`path` must be a directory with model.safetensors, or its index of several; that of a "
            "run has a run.json, that of an export a model in a numbered directory. "
            f"Received: path={str(path)!r}, which holds none of them"
        )
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise ValueError(
            f"{str(index)!r} must say in `weight_map` which file each array is in. "
            f"Received: weight_map={weight_map!r:.60}"
        )
    names = sorted(set(weight_map.values()))
    in_folders = [name for name in names if name != pathlib.PureWindowsPath(name).name]
    if in_folders:
        raise ValueError(
            f"{str(index)!r} must name files next to it. "
            f"Received: weight_map with {in_folders[0]!r}"
        )
    files = [directory / name for name in names]
    missing = [file.name for file in files if not file.exists()]
    if missing or not files:
        raise ValueError(
            f"`path` must hold every file of its index. Received: path={str(path)!r}, "
            f"without {', '.join(missing) or 'any'}"
        )
    return files, weight_map


def read_config(directory):
    """What the `config.json` of a directory says; nothing if there is none."""
    path = directory / "config.json"
    config = _read_json(path) if path.is_file() else {}
    for name in ("pretrained_cfg", "model_args"):
        if not isinstance(config.get(name) or {}, dict):
            raise ValueError(
                f"`{name}` of {str(path)!r} must be a JSON object. "
                f"Received: {name}={config[name]!r:.80}"
            )
    return config


def read_normalisation(directory, config):
    """Mean and standard deviation of the pixels in [0, 1], if a file of the directory tells."""
    path = directory / "preprocessor_config.json"
    # A directory of timm may still have the file of a model of transformers.
    told = config.get("pretrained_cfg") or (_read_json(path) if path.is_file() else {})
    pairs = (told.get("image_mean"), told.get("image_std")), (told.get("mean"), told.get("std"))
    found = next((pair for pair in pairs if not any(values in (None, []) for values in pair)), None)
    # Without rescaling, whoever calls the model has scaled pixels to [0, 1].
    is_scaling = told.get("do_rescale") is not False
    factor = (is_scaling and told.get("rescale_factor")) or 1 / 255
    if told.get("do_normalize") is False:
        found = [0], [1]
    elif found is None:
        return None
    # In units of pixels in [0, 1]; 12 digits are more than any file has.
    mean, deviation, (factor, *_) = (_as_channels(values, directory) for values in (*found, factor))
    if factor <= 0:
        raise ValueError(
            f"`rescale_factor` of {str(path)!r} must be positive. Received: {factor!r}"
        )
    return tuple(
        tuple(round(value / (255 * factor), 12) for value in values) for values in (mean, deviation)
    )


def normalisation_next_to(path):
    """Mean and standard deviation that are recorded next to weights; `None` if there is nothing.

    Args:
        path: `pathlib.Path` of a file or a directory.
    """
    if path.suffix in (".npz", ".keras", ".h5"):
        return None
    directory = path if path.is_dir() else path.parent
    return read_normalisation(directory, read_config(directory))


def _as_channels(values, directory):
    """The mean or the standard deviation of each channel; one number stands for all."""
    values = values if isinstance(values, list) else [values]
    if not all(isinstance(value, (int, float)) for value in values):
        raise ValueError(
            "Mean, standard deviation and factor of pixels next to the weights in "
            f"{str(directory)!r} must be numbers. Received: {values!r:.80}"
        )
    return tuple(values)


def _read_json(path):
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} must hold JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"{str(path)!r} must hold a JSON object. Received: {contents!r:.60}")
    return contents
