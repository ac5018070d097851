"""Read and write files of named arrays. Only `torch.load(weights_only=True)` unpickles."""

import contextlib
import json
import math
import mmap
import pathlib
import pickle
import struct
import zipfile
import zlib
from collections.abc import Mapping

import h5py
import numpy as np
import safetensors
import safetensors.numpy

from keras_vit.checkpoints.configuration import (
    MODEL,
    OPEN_CLIP_MODEL,
    OPEN_CLIP_PICKLED_MODEL,
    PICKLED_INDEX,
    PICKLED_MODEL,
    SHARD_INDEX,
    TF_MODEL,
    TORCH_SUFFIXES,
    read_configuration,
    read_json,
)
from keras_vit.core.arguments import path_error
from keras_vit.core.files import check_zip, hdf5_arrays

# Key of the image size in the comment of an `.npz` file.
IMAGE_SIZE_KEY = "keras_vit.image_size"
# Names of dtypes in safetensors, and in NumPy.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Files of weights in a directory. The first one that exists is read.
NAMES_IN_DIRECTORY = (
    *(MODEL, SHARD_INDEX, OPEN_CLIP_MODEL, TF_MODEL),
    *(PICKLED_MODEL, PICKLED_INDEX, OPEN_CLIP_PICKLED_MODEL),
)
# With older versions, a file could run code in spite of `weights_only` (CVE-2025-32434).
OLDEST_TORCH = (2, 6)
# Greatest number of dictionaries in each other in which weights are searched.
MAX_NESTED = 8


def open_archive(path, openers=()):
    """Open the arrays at a path, a file or a directory of a file or of shards.

    `openers` are pairs of a suffix and the function that opens such files.
    """
    for suffix, opener in openers:
        if path.name.endswith(suffix):
            return opener(path)
    if path.is_dir():
        name = next((name for name in NAMES_IN_DIRECTORY if (path / name).exists()), None)
        if name is None:
            raise path_error(path, f"be a directory with {' or '.join(NAMES_IN_DIRECTORY)}")
        path = path if name in (MODEL, SHARD_INDEX) else path / name
    if path.is_dir() or path.suffix == ".safetensors" or path.name == SHARD_INDEX:
        return SafetensorsArchive(path)
    if path.suffix == ".npz":
        return NpzArchive(path)
    if path.suffix == ".h5":
        return Hdf5Archive(path)
    if path.suffix in TORCH_SUFFIXES or path.name == PICKLED_INDEX:
        return TorchArchive(path)
    endings = " or ".join([*WRITERS, *TORCH_SUFFIXES, *(suffix for suffix, _ in openers)])
    raise path_error(path, f"be a directory or a file that ends with {endings}")


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
        files, index = find_files(path, directory)
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


def find_files(path, directory, name=MODEL):
    """Return the files that hold the arrays, and the `weight_map` of the index, or `None`.

    `name` is the name of the file or, with the suffix `.index.json`, of the index in a directory.
    """
    file, index = directory / name, directory / f"{name}.index.json"
    if not path.is_dir() and path != index:
        return [path], None
    if path.is_dir() and file.exists():
        if index.exists():
            # One of the two files may be left from an earlier model.
            raise path_error(path, f"be a directory without {file.name} or without {index.name}")
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


class TorchArchive(FileArchive):
    """A file that `torch.save` wrote, or the shards of an index, with the JSON files next to it.

    The names in nested dictionaries are joined by dots. Everything but arrays is left out, such as
    numbers and the settings of an optimizer.
    """

    def __init__(self, path):
        self.path = path
        directory = path if path.is_dir() else path.parent
        files, _ = find_files(path, directory, PICKLED_MODEL)
        self.config, self.preprocessor = read_configuration(path)
        self._tensors, self._exit = {}, contextlib.ExitStack()
        torch = _import_torch()
        for file in files:
            with as_path_error(file):
                named = list(_named_tensors(_load(torch, file), torch.Tensor, set()))
                # The elements of a tensor may be one number of the file, repeated.
                _check_size(file, (tensor.nbytes for _, tensor in named))
                if len(self._tensors | dict(named)) < len(self._tensors) + len(named):
                    raise ValueError("two arrays have the same name")
                self._tensors |= dict(named)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        self.dtypes = {
            name: str(tensor.dtype).removeprefix("torch.") for name, tensor in self._tensors.items()
        }

    def _array(self, name):
        tensor = self._tensors[name].detach()
        # NumPy has no bfloat16.
        return (tensor.float() if self.dtypes[name] == "bfloat16" else tensor).numpy()


def _import_torch():
    """Return the module `torch`, or raise an error for a version that is missing or unsafe."""
    try:
        import torch
    except ImportError as error:
        rule = "Files of torch.save need pip install 'keras-vit-zoo[torch]'"
        raise ImportError(f"{rule}. Received: {error}") from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        rule = f"Files of torch.save need torch {'.'.join(map(str, OLDEST_TORCH))} or newer"
        raise ImportError(f"{rule}. Received: {torch.__version__}")
    return torch


def _load(torch, path):
    """Return the contents of a file, without running code that the file names."""
    is_zip = zipfile.is_zipfile(path)
    with contextlib.ExitStack() as stack:
        if is_zip:
            archive = stack.enter_context(zipfile.ZipFile(path))
            members = archive.infolist()
            _check_size(path, (member.file_size for member in members))
            pickles = [archive.read(m) for m in members if m.filename.endswith(".pkl")]
        else:
            file = stack.enter_context(path.open("rb"))
            pickles = [stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))]
        # `torch.load` would allocate a bytearray of any size.
        if any(program.find(b"\nbytearray\n") >= 0 for program in pickles):
            raise ValueError("it must not hold a bytearray")
    # Training scripts store their arguments, and numbers of NumPy.
    names = ("argparse.Namespace", "numpy.dtype")
    names += tuple(f"numpy.{core}.multiarray.scalar" for core in ("core", "_core"))
    allowed = [(_Ignored, name) for name in names]
    with torch.serialization.safe_globals(allowed):
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        # The messages of torch advise the reader to run the code in the file.
        except (pickle.UnpicklingError, RuntimeError) as error:
            names = []
            with contextlib.suppress(Exception):
                names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
            raise ValueError(
                "it must hold only arrays and numbers, as `torch.save(model.state_dict(), path)` "
                f"writes them, not {', '.join(names) or 'other objects or damaged data'}"
            ) from error


class _Ignored:
    """Stands for an object that is not needed, because making it could crash or fill the memory."""

    def __init__(self, *arguments):
        """Ignore the arguments of the object."""

    def __setstate__(self, state):
        """Ignore the state of the object."""


def _named_tensors(contents, kind, seen, parts=()):
    """Generate the names and arrays of nested dictionaries, each dictionary once."""
    if isinstance(contents, kind) and contents.ndim:
        yield ".".join(parts), contents
    elif isinstance(contents, Mapping) and id(contents) not in seen and len(parts) < MAX_NESTED:
        seen.add(id(contents))
        for key, value in contents.items():
            yield from _named_tensors(value, kind, seen, (*parts, str(key)))


def _check_size(path, sizes):
    size, file_size = sum(sizes), path.stat().st_size
    if size > 2 * file_size:
        raise ValueError(f"it holds {size:,} bytes, more than twice its size of {file_size:,}")


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
FILE_SUFFIXES = (*WRITERS, *TORCH_SUFFIXES, ".keras", ".json", ".txt")
