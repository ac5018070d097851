"""The arrays of a file, one at a time: names and shapes first, values when asked for.

Nothing is unpickled.
"""

import contextlib
import json
import pathlib
import struct
import zipfile
import zlib

import keras
import numpy as np

from keras_vit.models.files import load_model

SHARD_INDEX = "model.safetensors.index.json"
# What safetensors calls the dtypes that weights are stored in.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# What reading raises on a file that is not what it claims.
DAMAGED = (
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    OSError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


class NpzArchive:
    """An `.npz` file.

    Attributes:
        path: of the file.
        shapes: shape of each array by name.
        dtypes: names of the dtypes that the arrays are stored in, by name.
        config: settings that came with the arrays; none in this kind of file.
    """

    def __init__(self, path):
        self.path = path
        self.config = {}
        self._exit = contextlib.ExitStack()
        try:
            self._file = self._exit.enter_context(path.open("rb"))
            self._zip = self._exit.enter_context(zipfile.ZipFile(self._file))
            headers = {name: self._header(name) for name in self._names()}
        except DAMAGED as error:
            self.close()
            raise ValueError(
                f"`path` must be a complete .npz archive. Received: path={str(path)!r}, "
                f"{what_it_is(path) or f'which cannot be read: {error}'}"
            ) from error
        self.shapes = {name: shape for name, (shape, _) in headers.items()}
        self.dtypes = {name: _dtype_name(dtype) for name, (_, dtype) in headers.items()}

    def _names(self):
        return [name.removesuffix(".npy") for name in self._zip.namelist()]

    def _header(self, name):
        with self._zip.open(f"{name}.npy") as member:
            shape, _, dtype = read_header(member)
        if dtype.hasobject:
            raise ValueError(f"{name!r} is a pickled object, which is never read")
        return shape, dtype

    def read(self, name):
        """The array of that name in float32; it may be a view of the file."""
        member = self._zip.getinfo(f"{name}.npy")
        try:
            if member.compress_type == zipfile.ZIP_STORED:
                array = self._map(member)
            else:
                with self._zip.open(member) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
        except DAMAGED as error:
            raise ValueError(
                f"`path` must be a complete .npz archive. Received: path={str(self.path)!r}, "
                f"whose array {name!r} is damaged: {error}"
            ) from error
        return as_float32(name, array)

    def _map(self, member):
        """A view of an array that is stored as it is: to check all of a file takes no memory."""
        self._file.seek(member.header_offset + 26)
        lengths = struct.unpack("<HH", self._file.read(4))
        start = member.header_offset + 30 + sum(lengths)
        # Copy on write: not even by mistake is the file changed.
        contents = np.memmap(self._file, np.uint8, "c", start, member.file_size)
        if zlib.crc32(contents) != member.CRC:
            raise zipfile.BadZipFile("its checksum is another")
        self._file.seek(start)
        shape, is_fortran, dtype = read_header(self._file)
        values = contents[self._file.tell() - start :].view(np.ndarray).view(dtype)
        return values.reshape(shape, order="F" if is_fortran else "C")

    def close(self):
        self._exit.close()


def read_header(file):
    """Shape, whether it is in Fortran's order, and dtype of an array in NumPy's format."""
    versions = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    return versions[np.lib.format.read_magic(file)](file)


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


def as_float32(name, array):
    """The array in float32, bit for bit of float16 and bfloat16 too.

    NumPy stores bfloat16 as void of two bytes (`|V2`): the upper half of a float32.

    Example:
    >>> as_float32("x", np.array([0x3FC0], "uint16").view("V2"))
    array([1.5], dtype=float32)
    """
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind != "f":
        raise ValueError(
            f"the array {name!r} must hold floating-point numbers. Received: dtype={array.dtype}"
        )
    return array.astype(np.float32, copy=False)


def _dtype_name(dtype):
    return "bfloat16" if dtype.kind == "V" and dtype.itemsize == 2 else dtype.name


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


def what_it_is(path):
    """What a file is that is not what its name says, if that can be told."""
    with pathlib.Path(path).open("rb") as file:
        start = file.read(512).lstrip()
    if start[:1] == b"<":
        return "an HTML or XML page, such as a server's error message"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer: the file itself has not been fetched"
    if start.startswith(b"PK\x03\x04") and not zipfile.is_zipfile(path):
        return "the beginning of an archive: the download was cut short"
    return "an empty file" if not start else None
