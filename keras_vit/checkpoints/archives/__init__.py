"""Files of named arrays: how each kind is opened and written."""

from keras_vit.checkpoints.archives.hdf5 import Hdf5Archive, write_hdf5
from keras_vit.checkpoints.archives.npz import NpzArchive, write_npz
from keras_vit.checkpoints.archives.safetensors import SafetensorsArchive, write_safetensors
from keras_vit.checkpoints.configuration import MODEL, SHARD_INDEX, TF_MODEL
from keras_vit.core.arguments import path_error

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
        rule = "describes its model: `load_checkpoint` reads .weights.h5 into a model"
    elif path.name == f"{TF_MODEL}.index.json":
        rule = f"is whole: transformers 4 writes one {TF_MODEL} with `max_shard_size='100GB'`"
    elif path.suffix == ".h5":
        return Hdf5Archive(path)
    elif path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        rule = "can be read without unpickling: save the weights as .safetensors"
    else:
        endings = " or ".join([*WRITERS, *others])
        rule = f"ends with {endings}, or a directory with model.safetensors"
    raise path_error(path, f"be a file that {rule}")


def has_only_hdf5(directory):
    """Return whether a directory has a `tf_model.h5`, and no `.safetensors` of a model."""
    others = (directory / name for name in (MODEL, SHARD_INDEX))
    return (directory / TF_MODEL).is_file() and not any(other.exists() for other in others)
