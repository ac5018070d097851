"""Archives that would fill the memory are refused before anything in them is expanded."""

import io
import zipfile

import h5py
import pytest

from keras_vit.checkpoints import from_checkpoint, load_checkpoint
from keras_vit.checkpoints.archives import NpzArchive
from keras_vit.checkpoints.named_models import load_trained
from keras_vit.models import vision_transformer
from tests.fixtures.tiny import TINY

# More than an archive of a few kilobytes may take.
SIZE = 65 * 2**20
REFUSED = "at most 20 times the size of the file"
WEIGHTS = "model.weights.h5"


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """The members of a sound `.keras` file."""
    path = tmp_path_factory.mktemp("sound") / "model.keras"
    vision_transformer(**TINY).save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
    return path


def with_large_state(weights):
    """The weights, and an array that takes no room in the file: none of its chunks is written."""
    buffer = io.BytesIO(weights)
    with h5py.File(buffer, "a") as file:
        options = {"chunks": (2**20,), "compression": "gzip"}
        file.create_dataset("optimizer/vars/0", shape=(SIZE,), dtype="uint8", **options)
    return buffer.getvalue()


@pytest.mark.parametrize("load", [from_checkpoint, load_trained])
def test_a_keras_file_with_a_large_member(load, members, tmp_path):
    config = members["config.json"] + SIZE * b" "
    path = written(tmp_path / "model.keras", {**members, "config.json": config})
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match=REFUSED):
        load(path)


@pytest.mark.parametrize("name", ["model.keras", "model.weights.h5"])
def test_a_file_of_keras_whose_arrays_are_large(name, members, tmp_path):
    weights = with_large_state(members[WEIGHTS])
    path = tmp_path / name
    if path.suffix == ".keras":
        written(path, {**members, WEIGHTS: weights})
    else:
        path.write_bytes(weights)
    with pytest.raises(ValueError, match=REFUSED):
        load_checkpoint(vision_transformer(**TINY), path)


def test_an_npz_file_whose_header_is_large(tmp_path):
    """NumPy reads all of a header to find the shape in it."""
    header = b"\x93NUMPY\2\0" + SIZE.to_bytes(4, "little") + SIZE * b" "
    with pytest.raises(ValueError, match=REFUSED):
        NpzArchive(written(tmp_path / "x.npz", {"head/bias.npy": header}))


def test_a_compressed_file_of_ordinary_size_is_read(members, tmp_path):
    path = written(tmp_path / "model.keras", members)
    assert from_checkpoint(path).count_params() == vision_transformer(**TINY).count_params()
