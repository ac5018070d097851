"""The arrays of a `.safetensors` file, and of several with an index."""

import contextlib
import logging
import pathlib

import numpy as np

from keras_vit.checkpoints.archives.npz import as_float32, incomplete_error
from keras_vit.checkpoints.configuration import (
    MODEL,
    SHARD_INDEX,
    TF_MODEL,
    read_configuration,
    read_json,
)
from keras_vit.core.arguments import path_error

# Files that are never read: pattern, and the end of the error message.
_OTHERS = {
    f"{TF_MODEL}.index.json": (
        f"a {TF_MODEL} in parts, which is not read: transformers 4 writes one file with "
        "`max_shard_size='100GB'`"
    ),
    "adapter_config.json": "an adapter, which `keras_vit.load_adapter` reads into its base",
    "*.h5": "{name}: give the path of that file",
    "pytorch_model.bin": "only {name}, which is pickled",
    "pytorch_model.bin.index.json": "only {name}, which is pickled",
    "saved_model.pb": "a SavedModel, which is not read: save the model with `save_pretrained`",
    "*.safetensors": "{name}: give the path of that file",
    "*.index": "{name} of TensorFlow, which is not read: save the model with `save_pretrained`",
}
# Our names of the dtypes in which weights are stored.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class SafetensorsArchive:
    """A `.safetensors` file, or several that an index lists, with the JSON files next to them."""

    is_mapped = True

    def __init__(self, path):
        self.path = path
        self._exit = contextlib.ExitStack()
        files, listed = _shards(path)
        self.config, self.preprocessor = read_configuration(files[0].parent)
        self._files, self.metadata = {}, {}
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
            found = f", where {sorted(twice)[0]!r} is in two files"
            raise path_error(self.path, "hold each array once", found)
        self._files.update(dict.fromkeys(tensors.keys(), tensors))
        self.metadata |= tensors.metadata() or {}

    def _check_index(self, listed):
        # TensorFlow's index has the name of the model before those of the arrays.
        known = self._files.keys()
        absent = [
            name for name in listed if name not in known and name.partition("/")[2] not in known
        ]
        if absent:
            raise path_error(self.path, "hold each array of its index", f", without {absent[0]!r}")

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
            raise incomplete_error(file, ".safetensors file", error) from error

    def read(self, name):
        """Return the array of that name in float32."""
        try:
            tensor = self._files[name].get_tensor(name)
        # NumPy does not have all dtypes of safetensors.
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"the array {name!r} must hold floating-point numbers that NumPy has. "
                f"Received: dtype={self.dtypes[name]}"
            ) from error
        return as_float32(name, tensor)

    def close(self):
        """Close the files."""
        self._exit.close()


def _shards(path):
    """Return the files that hold the arrays, and the names of the arrays that an index lists."""
    if path.suffix == ".safetensors":
        return [path], ()
    directory = path if path.is_dir() else path.parent
    file, index = directory / MODEL, directory / SHARD_INDEX
    if path != index and file.exists():
        if index.exists():
            raise path_error(
                path,
                f"be a directory without {MODEL} or without {SHARD_INDEX}, or one of the two files",
                ", which has both: one may be of an earlier model",
            )
        if path.is_dir() and (directory / TF_MODEL).exists():
            text = "%s has two models: %s is read, and not %s"
            logging.getLogger("keras_vit").warning(text, directory, MODEL, TF_MODEL)
        return [file], ()
    if not index.exists():
        raise ValueError(
            "`path` must be a directory with model.safetensors, its index or tf_model.h5; that of "
            "a run has a run.json, that of an export a model in a numbered directory. "
            f"Received: path={str(path)!r}, which holds {_held(directory)}"
        )
    weight_map = read_json(index).get("weight_map")
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
        found = f", without {', '.join(missing) or 'any'}"
        raise path_error(path, "hold every file of its index", found)
    return files, weight_map


def _held(directory):
    """Return what a directory without weights that can be read holds, for an error message."""
    if any(file.parent.name.isdecimal() for file in directory.glob("*/model.json")):
        return "an export, which `keras-vit predict` takes, and no other command"
    if runs := sorted(directory.glob("*/run.json")):
        return f"runs, such as {str(runs[0].parent)!r}: give the directory of one"
    for pattern, text in _OTHERS.items():
        if found := sorted(directory.glob(pattern)):
            return text.format(name=found[0].name)
    return "none of them"


def write_safetensors(path, arrays, image_size, **metadata):
    """Write arrays to a file that is readable by all who may read other files.

    `image_size` is ignored; the `config.json` records it. `metadata` are strings.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ValueError(
            "writing .safetensors needs the package safetensors: "
            f"pip install 'keras-vit[convert]'. Received: path={str(path)!r}"
        ) from error
    # safetensors stores the bytes of a transposed array in the wrong order.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.touch()
    mode = path.stat().st_mode
    save_file(arrays, path, metadata={"format": "pt", **metadata})
    # safetensors writes files that only their owner can read.
    path.chmod(mode)
