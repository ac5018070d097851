"""Files of named arrays: how each kind is opened and written."""

from keras_vit.checkpoints.archives.hdf5 import Hdf5Archive, write_hdf5
from keras_vit.checkpoints.archives.npz import NpzArchive, write_npz
from keras_vit.checkpoints.archives.safetensors import SafetensorsArchive, write_safetensors
from keras_vit.checkpoints.configuration import MODEL, SHARD_INDEX, TF_MODEL

# Functions that write arrays, by the suffix of the file.
WRITERS = {".npz": write_npz, ".safetensors": write_safetensors, ".h5": write_hdf5}
# Suffixes that are those of files, and not of directories or of names in the catalog.
FILE_SUFFIXES = (*WRITERS, ".keras", ".json", ".bin", ".pt", ".pth", ".txt")


def open_archive(path, others=()):
    """Open the arrays at a path: `.npz`, `.safetensors` (also sharded), `.h5`, or a directory.

    `others` are suffixes of files that the caller opens, for the error message.
    """
    if path.is_dir() and has_only_hdf5(path):
        return Hdf5Archive(path / TF_MODEL)
    if path.is_dir() or path.suffix == ".safetensors" or path.name == SHARD_INDEX:
        return SafetensorsArchive(path)
    if path.suffix == ".npz":
        return NpzArchive(path)
    if path.name.endswith(".weights.h5"):
        raise ValueError(
            "`path` must be a file that describes its model: `load_checkpoint` reads .weights.h5 "
            f"into a model. Received: path={str(path)!r}"
        )
    if path.suffix == ".h5":
        return Hdf5Archive(path)
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        raise ValueError(
            "`path` must be a file that can be read without unpickling: save the weights as "
            f".safetensors. Received: path={str(path)!r}"
        )
    raise ValueError(
        f"`path` must be a file that ends with {' or '.join([*WRITERS, *others])}, or a "
        f"directory with model.safetensors. Received: path={str(path)!r}"
    )


def has_only_hdf5(directory):
    """Return whether a directory has a `tf_model.h5`, and no `.safetensors` of a model."""
    others = (directory / name for name in (MODEL, SHARD_INDEX))
    return (directory / TF_MODEL).is_file() and not any(other.exists() for other in others)
