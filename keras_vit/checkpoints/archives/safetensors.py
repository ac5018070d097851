"""The arrays of a `.safetensors` file, and of several with an index."""

import contextlib
import pathlib

import numpy as np
import safetensors
import safetensors.numpy

from keras_vit.checkpoints.archives.memory import as_float32, naming_damage
from keras_vit.checkpoints.configuration import MODEL, SHARD_INDEX, read_configuration, read_json
from keras_vit.core.arguments import path_error

# Our names of the dtypes in which weights are stored.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class SafetensorsArchive:
    """A `.safetensors` file, or several that an index lists, with the JSON files next to them."""

    is_mapped = True

    def __init__(self, path):
        self.path = path
        directory = path if path.is_dir() else path.parent
        files, listed = _files(path, directory)
        self.config, self.preprocessor = read_configuration(directory)
        self._files, self.metadata, found = {}, {}, []
        with naming_damage(path), contextlib.ExitStack() as stack:
            for file in files:
                tensors = stack.enter_context(safetensors.safe_open(file, framework="numpy"))
                found += tensors.keys()
                self._files |= dict.fromkeys(tensors.keys(), tensors)
                self.metadata |= tensors.metadata() or {}
            # The index of TensorFlow has other names.
            if listed is not None and not len(listed) == len(found) == len(self._files):
                raise ValueError("its files do not hold each array of the index once")
            slices = {name: tensors.get_slice(name) for name, tensors in self._files.items()}
            self._exit = stack.pop_all()
        self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        dtypes = {name: part.get_dtype() for name, part in slices.items()}
        self.dtypes = {name: DTYPES.get(dtype, dtype) for name, dtype in dtypes.items()}

    def read(self, name):
        """Return the array of that name in float32."""
        # NumPy does not have all dtypes of safetensors.
        with naming_damage(self.path):
            tensor = self._files[name].get_tensor(name)
        return as_float32(name, tensor)

    def close(self):
        """Close the files."""
        self._exit.close()


def _files(path, directory):
    """Return the files that hold the arrays, and the arrays that an index lists, or `None`."""
    file, index = directory / MODEL, directory / SHARD_INDEX
    if path.suffix == ".safetensors":
        return [path], None
    if path.is_dir() and file.exists():
        if index.exists():
            # One may be of an earlier model.
            raise path_error(path, f"be a directory without {MODEL} or without {SHARD_INDEX}")
        return [file], None
    weight_map = read_json(index).get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else [None]
    if not all(
        isinstance(name, str) and name == pathlib.PureWindowsPath(name).name for name in names
    ):
        raise ValueError(
            f"`weight_map` of {str(index)!r} must name files next to it. "
            f"Received: weight_map={weight_map!r:.80}"
        )
    return [directory / name for name in sorted(set(names))], weight_map


def write_safetensors(path, arrays, image_size, **metadata):
    """Write arrays to a file that is readable by all who may read other files.

    `image_size` is ignored; the `config.json` records it. `metadata` are strings.
    """
    # safetensors stores the bytes of a transposed array in the wrong order.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.touch()
    mode = path.stat().st_mode
    safetensors.numpy.save_file(arrays, path, metadata={"format": "pt", **metadata})
    # safetensors writes files that only their owner can read.
    path.chmod(mode)
