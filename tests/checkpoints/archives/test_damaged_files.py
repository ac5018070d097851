"""Files that are damaged, or not what their names say: an error of one line names them."""

import json
import struct
import zipfile

import numpy as np
import pytest

from tests.fixtures.checkpoint_files import assert_refused, case_arrays, write
from tests.fixtures.reference import REFERENCE, case_path

SHARDS = "hf_classifier/model.safetensors"


def truncated(folder):
    (folder / "x.npz").write_bytes(case_path("a_vit_token").read_bytes()[:100_000])


def corrupted(folder):
    """A byte of an array's values is another: only the checksum shows it."""
    contents = bytearray(case_path("a_vit_token").read_bytes())
    contents[100_000] ^= 1
    (folder / "x.npz").write_bytes(contents)


def pickled_array(folder):
    arrays = {**case_arrays("a_vit_token"), "head/bias": np.array([{"a": 1}], dtype=object)}
    write(folder / "x.npz", arrays)


def lying_npz_header(folder):
    """An array that claims to be larger than the file."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (3 * 10**11,)}
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        for name, array in case_arrays("a_vit_token").items():
            with archive.open(f"{name}.npy", "w") as file:
                if name == "head/bias":
                    np.lib.format.write_array_header_1_0(file, header)
                else:
                    np.lib.format.write_array(file, array)


def lying_header(folder):
    """The header promises more bytes than there are."""
    contents = (REFERENCE / "timm_token.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", contents[:8])
    header = json.loads(contents[8 : 8 + length])
    header["head.weight"]["data_offsets"][1] += 4096
    header = json.dumps(header).encode()
    start = struct.pack("<Q", len(header)) + header
    (folder / "x.safetensors").write_bytes(start + contents[8 + length :])


def index(weight_map, *files):
    """An index of the arrays in some files, which all hold the same arrays."""

    def write_index(folder):
        for name in files:
            (folder / name).write_bytes((REFERENCE / SHARDS).read_bytes())
        text = json.dumps({"weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(text)

    return write_index


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("x.npz", truncated, "complete file of arrays"),
        ("x.npz", corrupted, "complete file of arrays.*Bad CRC-32"),
        ("x.npz", pickled_array, "'head/bias' is a pickled object, which is never read"),
        ("x.npz", lying_npz_header, "'head/bias' is .* and has 128 bytes"),
        ("x.safetensors", lying_header, "must be a complete file of arrays"),
        ("", index({"classifier.bias": "a.safetensors"}), "complete file of arrays.*a.safetensors"),
        ("", index([1]), "`weight_map` of .* must name files in its directory"),
        (
            "",
            index(
                {"classifier.bias": "a.safetensors", "classifier.weight": "b.safetensors"},
                *("a.safetensors", "b.safetensors"),
            ),
            "files of the index do not hold each array once",
        ),
        (
            "",
            # Without the folder, the name is that of another file.
            index({"classifier.bias": "step_9/a.safetensors"}, "a.safetensors"),
            "must name files in its directory. Received: .*'step_9/a.safetensors'",
        ),
        (
            "",
            index({"classifier.bias": "a.safetensors", "x": "a.safetensors"}, "a.safetensors"),
            "files of the index do not hold each array once",
        ),
    ],
)
def test_refused(name, make, message, tmp_path):
    make(tmp_path)
    assert_refused(tmp_path / name, message)
