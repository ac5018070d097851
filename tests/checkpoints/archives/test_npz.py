"""Damaged headers of arrays, on which NumPy's parser raises errors of many types."""

import contextlib
import io
import struct
import zipfile

import numpy as np
import pytest

from keras_vit.checkpoints.archives import open_archive
from keras_vit.evaluation.extraction import _read

ARRAYS = {
    "digest": np.array("key"),
    "features": np.ones((2, 3), "float32"),
    "labels": np.zeros(2, "int32"),
}
REST = "'fortran_order': False, 'shape': (2, 3)}"
# What each raises in NumPy 2.4 under Python 3.11: TokenError, SyntaxError twice, IndexError,
# OverflowError and TypeError.
HEADERS = [
    f"'descr': '<f4', {REST}",
    f"{{'descr': '<f4', {REST}" + "\n    *\n  /",
    f"{{'descr': ',f2', {REST}",
    f"{{'descr': (), {REST}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999999)}",
    f"{{1: 2, 'descr': '<f4', {REST}",
]


def stored(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def with_header(text):
    header = text.encode() + b"\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    return start + header + bytes(24)


def write(path, features):
    """An archive with correct checksums, whose array of features is these bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in ARRAYS.items():
            archive.writestr(f"{name}.npy", features if name == "features" else stored(array))
    return path


def read_all(path):
    with contextlib.closing(open_archive(path)) as archive:
        return archive.read("features")


def test_a_good_file(tmp_path):
    path = write(tmp_path / "file.npz", stored(ARRAYS["features"]))
    np.testing.assert_array_equal(read_all(path), ARRAYS["features"])
    np.testing.assert_array_equal(_read(path, "key")[0], ARRAYS["features"])


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header[:20])
def test_a_damaged_header(header, tmp_path, caplog):
    path = write(tmp_path / "file.npz", with_header(header))
    with pytest.raises(ValueError, match="`path` must be a complete file of arrays"):
        read_all(path)
    # Cached features are computed again.
    assert _read(path, "key") is None
    assert "features are computed again" in caplog.text


def test_a_size_that_is_not_true(tmp_path):
    """The header and the directory of the archive agree on more than any memory holds."""
    shape, path = (2**46,), tmp_path / "file.npz"
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", with_header(header))
        archive.infolist()[0].file_size = 2**50
    with pytest.raises(ValueError, match="at most 20 times the size of the file"):
        read_all(path)
