"""Files of named arrays: how each kind is opened and written."""

from keras_vit.checkpoints.archives.hdf5 import Hdf5Archive, write_hdf5
from keras_vit.checkpoints.archives.npz import NpzArchive, write_npz
from keras_vit.checkpoints.archives.safetensors import SafetensorsArchive, write_safetensors
from keras_vit.checkpoints.configuration import MODEL, SHARD_INDEX, TF_MODEL
from keras_vit.core.arguments import path_error

# Functions that write arrays, by the suffix of the file.
WRITERS = {".npz": write_npz, ".safetensors": write_safetensors, ".h5": write_hdf5}
# Suffixes that are those of files, and not of directories.
FILE_SUFFIXES = (*WRITERS, ".keras", ".json", ".bin", ".pt", ".pth", ".txt")


def open_archive(path, others=()):
    """Open the arrays at a path: `.npz`, `.safetensors` (also sharded), `.h5`, or a directory.

    `others` are suffixes of files that the caller opens, for the error message.
    """
    if path.is_dir() and not any((path / name).exists() for name in (MODEL, SHARD_INDEX)):
        path = path / TF_MODEL
        if not path.exists():
            raise path_error(
                path.parent, f"be a directory with {MODEL}, {SHARD_INDEX} or {TF_MODEL}"
            )
    if path.is_dir() or path.suffix == ".safetensors" or path.name == SHARD_INDEX:
        return SafetensorsArchive(path)
    if path.suffix == ".npz":
        return NpzArchive(path)
    if path.suffix == ".h5":
        return Hdf5Archive(path)
    endings = " or ".join([*WRITERS, *others])
    rule = f"be a directory or a file that ends with {endings}; pickled files are never read"
    raise path_error(path, rule)
