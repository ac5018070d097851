"""Read and write files of named arrays: `.npz`, `.safetensors` and `.h5`. Nothing is unpickled."""

import contextlib
import json
import math
import pathlib
import struct
import zipfile
import zlib

import h5py
import numpy as np
import safetensors
import safetensors.numpy

from keras_vit.checkpoints.configuration import (
    MODEL,
    OPEN_CLIP_MODEL,
    SHARD_INDEX,
    TF_MODEL,
    read_configuration,
    read_json,
)
from keras_vit.core.arguments import path_error
from keras_vit.core.files import check_zip, hdf5_arrays

# Key of the image size in the comment of an `.npz` file.
IMAGE_SIZE_KEY = "keras_vit.image_size"
# Names of dtypes in safetensors, and in NumPy.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def open_archive(path, openers=()):
    """Open the arrays at a path: `.npz`, `.safetensors` (or shards), `.h5`, or a directory.

    `openers` are pairs of a suffix and the function that opens such files.
    """
    for suffix, opener in openers:
        if path.name.endswith(suffix):
            return opener(path)
    if path.is_dir() and not any((path / name).exists() for name in (MODEL, SHARD_INDEX)):
        names = (OPEN_CLIP_MODEL, TF_MODEL)
        file = next((path / name for name in names if (path / name).exists()), None)
        if file is None:
            others = f"{MODEL}, {SHARD_INDEX}, {OPEN_CLIP_MODEL} or {TF_MODEL}"
            raise path_error(path, f"be a directory with {others}")
        path = file
    if path.is_dir() or path.suffix == ".safetensors" or path.name == SHARD_INDEX:
        return SafetensorsArchive(path)
    if path.suffix == ".npz":
        return NpzArchive(path)
    if path.suffix == ".h5":
        return Hdf5Archive(path)
    endings = " or ".join([*WRITERS, *(suffix for suffix, _ in openers)])
    rule = f"be a directory or a file that ends with {endings}; pickled files are never read"
    raise path_error(path, rule)


class ArrayArchive:
    """Arrays in memory that are read like a file; `path` is the file's name in error messages."""

    def __init__(self, path, arrays, config, preprocessor=None):
        self.path = path
        self.config = config
        self.preprocessor = preprocessor or {}
        self._arrays = arrays
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}

    def read(self, name):
        """Return the array of that name in float32."""
        return as_float32(name, self._arrays[name])

    def close(self):
        """Do nothing: no file is open."""


class FileArchive:
    """Base class for files. A subclass defines `_array(name)` and `_exit`, which closes files."""

    def read(self, name):
        """Return the array of that name in float32; it may be a view of the file."""
        with as_path_error(self.path):
            array = self._array(name)
        return as_float32(name, array)

    def close(self):
        """Close the files."""
        self._exit.close()


class NpzArchive(FileArchive):
    """An `.npz` file. Its `config` contains the image size if `write_npz` recorded it."""

    def __init__(self, path):
        self.path = path
        self.preprocessor = {}
        with as_path_error(path), contextlib.ExitStack() as stack:
            check_zip(path)
            self._file = stack.enter_context(path.open("rb"))
            self._zip = stack.enter_context(zipfile.ZipFile(self._file))
            self.config = _read_comment(self._zip.comment)
            self._members = {
                member.filename.removesuffix(".npy"): member for member in self._zip.infolist()
            }
            if len(self._members) < len(self._zip.infolist()):
                raise ValueError("two arrays have the same name")
            headers = {name: self._header(name) for name in self._members}
            self._exit = stack.pop_all()
        self.shapes = {name: shape for name, (shape, _) in headers.items()}
        self.dtypes = {name: _dtype_name(dtype) for name, (_, dtype) in headers.items()}

    def _header(self, name):
        member = self._members[name]
        with self._zip.open(member) as file:
            shape, _, dtype = _read_header(file)
        if dtype.hasobject:
            raise ValueError(f"{name!r} is a pickled object, which is never read")
        if math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"{name!r} is {shape}, and has {member.file_size} bytes")
        return shape, dtype

    def _array(self, name):
        member = self._members[name]
        if member.compress_type == zipfile.ZIP_STORED:
            return self._map(member)
        with self._zip.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    def _map(self, member):
        """Return a view of an uncompressed array, so that checking a file takes no memory."""
        self._file.seek(member.header_offset + 26)
        lengths = struct.unpack("<HH", self._file.read(4))
        start = member.header_offset + 30 + sum(lengths)
        # The mode "c" is copy on write, so that assignments do not change the file.
        contents = np.memmap(self._file, np.uint8, "c", start, member.file_size)
        if zlib.crc32(contents) != member.CRC:
            raise ValueError(f"the checksum of {member.filename} differs")
        self._file.seek(start)
        shape, is_fortran, dtype = _read_header(self._file)
        values = contents[self._file.tell() - start :].view(np.ndarray).view(dtype)
        return values.reshape(shape, order="F" if is_fortran else "C")


def write_npz(path, arrays, image_size):
    """Write arrays to an `.npz` file, with the image size in the archive's comment.

    Other readers of `.npz` files ignore the comment.
    """
    with path.open("wb") as file:
        np.savez(file, **arrays)
    if image_size is not None:
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = json.dumps({IMAGE_SIZE_KEY: image_size}).encode()


def _read_comment(comment):
    """Return `{"image_size": ...}` from a comment of `write_npz`; `{}` for another comment."""
    try:
        return {"image_size": json.loads(comment)[IMAGE_SIZE_KEY]}
    except (ValueError, LookupError, TypeError):
        return {}


def _read_header(file):
    """Return the shape, whether the order is Fortran's, and the dtype of an array in a file."""
    versions = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    return versions[np.lib.format.read_magic(file)](file)


def _dtype_name(dtype):
    return "bfloat16" if dtype.kind == "V" and dtype.itemsize == 2 else dtype.name


class SafetensorsArchive(FileArchive):
    """A `.safetensors` file, or the shards of an index, with the JSON files next to them."""

    def __init__(self, path):
        self.path = path
        directory = path if path.is_dir() else path.parent
        files, index = _find_files(path, directory)
        self.config, self.preprocessor = read_configuration(path)
        self._files, self.metadata, names = {}, {}, []
        with as_path_error(path), contextlib.ExitStack() as stack:
            for file in files:
                tensors = stack.enter_context(safetensors.safe_open(file, framework="numpy"))
                names += tensors.keys()
                self._files |= dict.fromkeys(tensors.keys(), tensors)
                self.metadata |= tensors.metadata() or {}
            # Compare only the numbers of arrays, because an index of TensorFlow has other names.
            if index is not None and not len(index) == len(names) == len(self._files):
                raise ValueError("the files of the index do not hold each array once")
            slices = {name: tensors.get_slice(name) for name, tensors in self._files.items()}
            self._exit = stack.pop_all()
        self.shapes = {name: tuple(array.get_shape()) for name, array in slices.items()}
        dtypes = {name: array.get_dtype() for name, array in slices.items()}
        self.dtypes = {name: DTYPES.get(dtype, dtype) for name, dtype in dtypes.items()}

    def _array(self, name):
        return self._files[name].get_tensor(name)


def _find_files(path, directory):
    """Return the files that hold the arrays, and the `weight_map` of the index, or `None`."""
    file, index = directory / MODEL, directory / SHARD_INDEX
    if path.suffix == ".safetensors":
        return [path], None
    if path.is_dir() and file.exists():
        if index.exists():
            # One of the two files may be left from an earlier model.
            raise path_error(path, f"be a directory without {MODEL} or without {SHARD_INDEX}")
        return [file], None
    weight_map = read_json(index).get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else [None]
    if not all(
        isinstance(name, str) and name == pathlib.PureWindowsPath(name).name for name in names
    ):
        raise ValueError(
            f"`weight_map` of {str(index)!r} must name files in its directory. "
            f"Received: weight_map={weight_map!r:.80}"
        )
    return [directory / name for name in sorted(set(names))], weight_map


def write_safetensors(path, arrays, image_size, **metadata):
    """Write arrays to a `.safetensors` file with the usual permissions of new files.

    `metadata` are strings. `image_size` is ignored, because the `config.json` records it.
    """
    # safetensors stores the bytes of a transposed array in the wrong order.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.touch()
    mode = path.stat().st_mode
    safetensors.numpy.save_file(arrays, path, metadata={"format": "pt", **metadata})
    # safetensors would leave a file that only its owner can read.
    path.chmod(mode)


class Hdf5Archive(FileArchive):
    """An `.h5` file, with the JSON files next to it."""

    def __init__(self, path):
        self.path = path
        self.config, self.preprocessor = read_configuration(path)
        with as_path_error(path), contextlib.ExitStack() as stack:
            self._file = stack.enter_context(h5py.File(path, "r"))
            arrays = hdf5_arrays(path, self._file)
            self.shapes = {name: array.shape for name, array in arrays.items()}
            self.dtypes = {name: array.dtype.name for name, array in arrays.items()}
            self._exit = stack.pop_all()

    def _array(self, name):
        return np.asarray(self._file[name][()])


def write_hdf5(path, arrays, image_size):
    """Write arrays to an `.h5` file with the attributes that Keras 2 and transformers read.

    An array's name begins with the name of its layer and a slash. `image_size` is ignored, because
    the `config.json` records it.
    """
    layers = {}
    for name in arrays:
        layer, _, weight = name.partition("/")
        layers.setdefault(layer, []).append(weight)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = list(layers)
        file.attrs["backend"] = "tensorflow"
        file.attrs["keras_version"] = "2.15.0"
        for layer, weights in layers.items():
            group = file.create_group(layer)
            group.attrs["weight_names"] = weights
            for weight in weights:
                group.create_dataset(weight, data=arrays[f"{layer}/{weight}"])


@contextlib.contextmanager
def as_path_error(path):
    """Turn any error that reading a file raises into a `ValueError` with the file's path."""
    try:
        yield
    # Damaged files raise errors of many types, for example `MemoryError` for a wrong size.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise path_error(path, "be a complete file of arrays", f" ({reason})") from error


def as_float32(name, array):
    """Return the array in float32, which is exact for float16 and bfloat16.

    NumPy reads bfloat16 as `|V2`: two bytes, which are the upper half of a float32.

    Example:
    >>> from keras_vit.checkpoints.archives import as_float32
    >>> as_float32("x", np.array([0x3FC0], "uint16").view("V2"))
    array([1.5], dtype=float32)
    """
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind != "f":
        raise ValueError(
            f"the array {name!r} must hold floating-point numbers. Received: dtype={array.dtype}"
        )
    # A float64 may become infinite: callers check that values are finite.
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


# Functions that write arrays, by suffix.
WRITERS = {".npz": write_npz, ".safetensors": write_safetensors, ".h5": write_hdf5}
# A path with one of these suffixes is a file, not a directory.
FILE_SUFFIXES = (*WRITERS, ".keras", ".json", ".bin", ".pt", ".pth", ".txt")
