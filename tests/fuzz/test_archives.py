"""Damaged checkpoints: their headers, their arrays, and what is next to them."""

import json

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import inspect_checkpoint
from keras_vit.checkpoints.archives import open_archive, write_hdf5
from tests.fuzz.damage import FUZZ, damaged

ARRAYS = {
    "a/kernel": np.arange(12, dtype="float32").reshape(3, 4),
    "a/bias": np.zeros(4, "float32"),
    "b/scale": np.ones((), "float16"),
}


def read_all(path):
    archive = open_archive(path)
    try:
        return {name: archive.read(name) for name in archive.shapes}
    finally:
        archive.close()


def assert_read_or_refused(path, contents):
    path.write_bytes(contents)
    try:
        arrays = read_all(path)
    except ValueError as error:
        assert str(error)
    else:
        # An array is never larger than its file, or the file is compressed.
        assert sum(array.nbytes for array in arrays.values()) <= 100 * len(contents) + 1000


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with a sound file of each kind."""
    folder = tmp_path_factory.mktemp("sound")
    np.savez(folder / "stored.npz", **ARRAYS)
    np.savez_compressed(folder / "packed.npz", **ARRAYS)
    save_file(ARRAYS, folder / "x.safetensors")
    write_hdf5(folder / "x.h5", ARRAYS, None)
    return folder


@pytest.mark.parametrize("name", ["stored.npz", "packed.npz", "x.safetensors", "x.h5"])
def test_damaged_archives(name, sound, folder):
    assert read_all(sound / name).keys() == ARRAYS.keys()

    @FUZZ
    @given(contents=damaged([(sound / name).read_bytes()]))
    def check(contents):
        assert_read_or_refused(folder / name, contents)

    check()


NUMBERS = st.one_of(st.integers(-2, 5), st.integers(0, 2**64), st.sampled_from([-1, 2**31, 2**63]))


@FUZZ
@given(
    dtype=st.sampled_from(["F32", "F16", "BF16", "I64", "F8_E4M3", "BOOL", "?", ""]),
    shape=st.lists(NUMBERS, max_size=4),
    offsets=st.lists(NUMBERS, min_size=2, max_size=2),
    length=st.one_of(st.none(), NUMBERS),
)
def test_headers_of_safetensors(dtype, shape, offsets, length, folder):
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    header = json.dumps({"a": entry}).encode()
    length = len(header) if length is None else length % 2**64
    contents = length.to_bytes(8, "little") + header + bytes(32)
    assert_read_or_refused(folder / "x.safetensors", contents)


def test_hdf5_that_names_other_files_is_refused(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"0123456789abcdef")
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("a", (4,), "float32", external=[(str(secret), 0, 16)])
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["a"] = np.ones(4, "float32")
    layout = h5py.VirtualLayout((4,), "float32")
    layout[:] = h5py.VirtualSource(tmp_path / "source.h5", "a", (4,))
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("a", layout)
    for name in ("external", "virtual"):
        with pytest.raises(ValueError, match="is in another"):
            read_all(tmp_path / f"{name}.h5")
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["b"] = np.ones(4, "float32")
        file["a"] = h5py.ExternalLink(str(tmp_path / "source.h5"), "a")
        file["loop"] = h5py.SoftLink("/")
    assert read_all(tmp_path / "links.h5").keys() == {"b"}


def test_arrays_that_are_much_larger_than_their_file_are_refused(tmp_path):
    with h5py.File(tmp_path / "huge.h5", "w") as file:
        file.create_dataset("a", (10**12,), "float32", chunks=(1024,))
    np.savez_compressed(tmp_path / "zeros.npz", a=np.zeros(10**8, "float16"))
    for name in ("huge.h5", "zeros.npz"):
        with pytest.raises(ValueError, match="times the size of the file"):
            read_all(tmp_path / name)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("project", ["huggingface", "timm"])
def test_configurations_of_other_sizes(project, folder):
    model = keras_vit.vision_transformer(8, 8, 1, 2, 16, num_classes=3, image_size=16)
    directory = folder / project
    keras_vit.save_checkpoint(model, directory, project)
    config = json.loads((directory / "config.json").read_text())

    @FUZZ
    @given(changes=st.dictionaries(st.sampled_from(list(config)), JSON, min_size=1, max_size=3))
    def check(changes):
        (directory / "config.json").write_text(json.dumps({**config, **changes}))
        try:
            inspect_checkpoint(directory)
        except ValueError as error:
            assert str(error)

    check()
