"""The arrays of an `.npz` file: names and shapes when it is opened, each array when it is read.

Nothing is unpickled.
"""

import contextlib
import json
import lzma
import math
import pathlib
import struct
import tokenize
import zipfile
import zlib

import numpy as np

from keras_vit.core.arguments import path_error
from keras_vit.core.files import check_zip

# Key of the image size in the archive's comment.
RECORDED = "keras_vit.image_size"

# Errors of reading a damaged file.
DAMAGED = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,  # an encrypted archive, or an unknown compression
    SyntaxError,  # headers are parsed as Python
    SystemError,  # text that is not Unicode
    tokenize.TokenError,
    struct.error,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
)


class NpzArchive:
    """An `.npz` file. Its `config` has the image size, if `write_npz` recorded it.

    `is_mapped`: whether no array is compressed; reading one twice then costs little.
    """

    def __init__(self, path):
        self.path = path
        self.config, self.preprocessor = {}, {}
        self._exit = contextlib.ExitStack()
        try:
            check_zip(path)
            self._file = self._exit.enter_context(path.open("rb"))
            self._zip = self._exit.enter_context(zipfile.ZipFile(self._file))
            self.config = _recorded(self._zip.comment)
            headers = {name: self._header(name) for name in self._names()}
        except DAMAGED as error:
            self.close()
            raise incomplete_error(path, ".npz archive", error) from error
        self.shapes = {name: shape for name, (shape, _) in headers.items()}
        self.dtypes = {name: _dtype_name(dtype) for name, (_, dtype) in headers.items()}
        members = self._zip.infolist()
        self.is_mapped = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        self._checked = set()

    def _names(self):
        names = self._zip.namelist()
        twice = {name for name in names if names.count(name) > 1 or not name.endswith(".npy")}
        if twice:
            raise ValueError(f"{sorted(twice)[0]!r} is not an array, or is there twice")
        return [name.removesuffix(".npy") for name in names]

    def _header(self, name):
        with self._zip.open(f"{name}.npy") as member:
            shape, _, dtype = read_header(member)
        if dtype.hasobject:
            raise ValueError(f"{name!r} is a pickled object, which is never read")
        size = self._zip.getinfo(f"{name}.npy").file_size
        if math.prod(shape) * dtype.itemsize > size:
            raise ValueError(f"{name!r} is {shape} by its header, and has {size} bytes")
        return shape, dtype

    def read(self, name):
        """Return the array of that name in float32; it may be a view of the file."""
        member = self._zip.getinfo(f"{name}.npy")
        try:
            if member.compress_type == zipfile.ZIP_STORED:
                array = self._map(member)
            else:
                with self._zip.open(member) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
        # A wrong size may exceed the memory.
        except (*DAMAGED, MemoryError) as error:
            found = f", whose array {name!r} is damaged: {error}"
            raise path_error(self.path, "be a complete .npz archive", found) from error
        return as_float32(name, array)

    def _map(self, member):
        """Return a view of an array that is not compressed: checking a file takes no memory."""
        self._file.seek(member.header_offset + 26)
        lengths = struct.unpack("<HH", self._file.read(4))
        start = member.header_offset + 30 + sum(lengths)
        # Copy on write: the file cannot be changed by mistake.
        contents = np.memmap(self._file, np.uint8, "c", start, member.file_size)
        if member.filename not in self._checked and zlib.crc32(contents) != member.CRC:
            raise zipfile.BadZipFile("its checksum differs")
        self._checked.add(member.filename)
        self._file.seek(start)
        shape, is_fortran, dtype = read_header(self._file)
        values = contents[self._file.tell() - start :].view(np.ndarray).view(dtype)
        return values.reshape(shape, order="F" if is_fortran else "C")

    def close(self):
        """Close the file."""
        self._exit.close()


def write_npz(path, arrays, image_size):
    """Write arrays to an `.npz` file, with the image size in the archive's comment.

    Other readers of `.npz` files ignore the comment.
    """
    with path.open("wb") as file:
        np.savez(file, **arrays)
    if image_size is not None:
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = json.dumps({RECORDED: image_size}).encode()


def _recorded(comment):
    """Return what `write_npz` recorded; empty for an archive with another comment."""
    try:
        recorded = json.loads(comment or b"{}")[RECORDED]
    except (ValueError, LookupError, TypeError):
        return {}
    return {"image_size": recorded}


def read_header(file):
    """Return the shape, whether the order is Fortran's, and the dtype of an array in a file."""
    versions = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    return versions[np.lib.format.read_magic(file)](file)


def as_float32(name, array):
    """Return the array in float32, which is exact for float16 and bfloat16.

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
    # The caller checks for infinity.
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def _dtype_name(dtype):
    return "bfloat16" if dtype.kind == "V" and dtype.itemsize == 2 else dtype.name


def incomplete_error(path, kind, error):
    """Return the error to raise for a file that cannot be read."""
    found = what_it_is(path) or f"which cannot be read: {error}"
    return path_error(path, f"be a complete {kind}", f", {found}")


def what_it_is(path):
    """Describe a file whose contents are not what its name says, or return `None`."""
    try:
        with pathlib.Path(path).open("rb") as file:
            start = file.read(512).lstrip()
    except OSError:
        return None
    if start[:1] == b"<":
        return "an HTML or XML page, such as a server's error message"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer: the file itself has not been fetched"
    if start.startswith(b"PK\x03\x04") and not zipfile.is_zipfile(path):
        return "the beginning of an archive: the download was cut short"
    return "an empty file" if not start else None
