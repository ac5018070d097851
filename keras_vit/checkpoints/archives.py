"""The arrays of files other than `.npz`, and of models in memory; all have the same methods."""

import contextlib
import json
import pathlib

import keras

from keras_vit.checkpoints.npz import NpzArchive, as_float32, what_it_is
from keras_vit.models.files import load_model

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

    def __init__(self, path):
        self.path = path
        self._exit = contextlib.ExitStack()
        files = _shards(path)
        config = files[0].parent / "config.json"
        self.config = _read_json(config) if config.is_file() else {}
        self._files = {}
        for file in files:
            tensors = self._open(file)
            self._files.update(dict.fromkeys(tensors.keys(), tensors))
        slices = {name: tensors.get_slice(name) for name, tensors in self._files.items()}
        self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        self.dtypes = {name: DTYPES.get(part.get_dtype()) for name, part in slices.items()}

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
        return as_float32(name, self._files[name].get_tensor(name))

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
        return ModelArchive(load_model(path), path)
    if path.is_dir() or path.suffix == ".safetensors" or path.name == SHARD_INDEX:
        return SafetensorsArchive(path)
    if path.suffix == ".npz":
        return NpzArchive(path)
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
    """The files that hold the arrays of a file, an index or a directory."""
    if path.suffix == ".safetensors":
        return [path]
    directory = path if path.is_dir() else path.parent
    index = directory / SHARD_INDEX
    if not index.exists():
        file = directory / "model.safetensors"
        if not file.exists():
            raise ValueError(
                "`path` must be a directory with model.safetensors, or its index of several. "
                f"Received: path={str(path)!r}, which holds neither"
            )
        return [file]
    names = sorted(set(_read_json(index).get("weight_map", {}).values()))
    files = [directory / pathlib.PurePath(name).name for name in names]
    missing = [file.name for file in files if not file.exists()]
    if missing or not files:
        raise ValueError(
            f"`path` must hold every file of its index. Received: path={str(path)!r}, "
            f"without {', '.join(missing) or 'any'}"
        )
    return files


def _read_json(path):
    try:
        contents = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} must hold JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"{str(path)!r} must hold a JSON object. Received: {contents!r:.60}")
    return contents
