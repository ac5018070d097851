"""The arrays of an `.npz` file: names and shapes when it is opened, each array when it is read.

Nothing is unpickled.
"""

import contextlib
import json
import math
import struct
import zipfile
import zlib

import numpy as np

from keras_vit.checkpoints.archives.memory import as_float32, naming_damage
from keras_vit.core.files import check_zip

# Key of the image size in the archive's comment.
RECORDED = "keras_vit.image_size"


class NpzArchive:
    """An `.npz` file. Its `config` has the image size, if `write_npz` recorded it.

    `is_mapped`: whether no array is compressed; reading one twice then costs little.
    """

    def __init__(self, path):
        self.path = path
        self.preprocessor = {}
        with naming_damage(path), contextlib.ExitStack() as stack:
            check_zip(path)
            self._file = stack.enter_context(path.open("rb"))
            self._zip = stack.enter_context(zipfile.ZipFile(self._file))
            self.config = _recorded(self._zip.comment)
            self._members = {
                member.filename.removesuffix(".npy"): member for member in self._zip.infolist()
            }
            if len(self._members) < len(self._zip.infolist()):
                raise ValueError("an array is there twice")
            headers = {name: self._header(name) for name in self._members}
            self._exit = stack.pop_all()
        self.shapes = {name: shape for name, (shape, _) in headers.items()}
        self.dtypes = {name: _dtype_name(dtype) for name, (_, dtype) in headers.items()}
        self.is_mapped = all(map(_is_stored, self._members.values()))

    def _header(self, name):
        member = self._members[name]
        with self._zip.open(member) as file:
            shape, _, dtype = _read_header(file)
        if dtype.hasobject:
            raise ValueError(f"{name!r} is a pickled object, which is never read")
        if math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"{name!r} is {shape}, and has {member.file_size} bytes")
        return shape, dtype

    def read(self, name):
        """Return the array of that name in float32; it may be a view of the file."""
        member = self._members[name]
        with naming_damage(self.path):
            if _is_stored(member):
                array = self._map(member)
            else:
                with self._zip.open(member) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
        return as_float32(name, array)

    def _map(self, member):
        """Return a view of an array that is not compressed: checking a file takes no memory."""
        self._file.seek(member.header_offset + 26)
        lengths = struct.unpack("<HH", self._file.read(4))
        start = member.header_offset + 30 + sum(lengths)
        # Copy on write: the file cannot be changed by mistake.
        contents = np.memmap(self._file, np.uint8, "c", start, member.file_size)
        if zlib.crc32(contents) != member.CRC:
            raise ValueError(f"the checksum of {member.filename} differs")
        self._file.seek(start)
        shape, is_fortran, dtype = _read_header(self._file)
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
        return {"image_size": json.loads(comment)[RECORDED]}
    except (ValueError, LookupError, TypeError):
        return {}


def _read_header(file):
    """Return the shape, whether the order is Fortran's, and the dtype of an array in a file."""
    versions = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    return versions[np.lib.format.read_magic(file)](file)


def _is_stored(member):
    return member.compress_type == zipfile.ZIP_STORED


def _dtype_name(dtype):
    return "bfloat16" if dtype.kind == "V" and dtype.itemsize == 2 else dtype.name
