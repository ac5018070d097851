"""Damaged and malicious files of torch.save: no code runs, and no memory is taken."""

import pickle
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import EDGES, FUZZ, damaged
from tests.fuzz.test_archives import ARRAYS, read_all

# Imported before the memory is measured.
torch = pytest.importorskip("torch")

# Functions that a pickle could call: some run code, some take memory.
FUNCTIONS = (
    *("os.system", "posix.system", "subprocess.Popen", "builtins.exec", "builtins.eval"),
    *("builtins.open", "builtins.getattr", "builtins.__import__", "builtins.bytearray"),
    *("torch.hub.load", "torch.load", "torch.jit.load", "torch.Tensor", "torch.Size"),
    *("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"),
    *("torch.storage._load_from_bytes", "collections.OrderedDict", "collections.Counter"),
    *("numpy.dtype", "numpy._core.multiarray.scalar", "numpy._core.multiarray._reconstruct"),
    *("argparse.Namespace", "pathlib.PosixPath", "torch.FloatStorage", "torch.nn.Parameter"),
)


def assert_read_or_refused(path):
    try:
        arrays = read_all(path)
    except ValueError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert sum(array.nbytes for array in arrays.values()) <= 2 * path.stat().st_size


def pushed(value):
    """Return the part of a pickle that makes a value of Python."""
    return pickle.dumps(value, 2)[2:-1]


def called(function, arguments):
    module, _, name = function.rpartition(".")
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(arguments) + b"tR"


def stored(size):
    """Return a storage of a file, with a size that need not be its own."""
    parts = [pushed("storage"), b"ctorch\nFloatStorage\n", *map(pushed, ("0", "cpu", size))]
    return b"(" + b"".join(parts) + b"tQ"


def programs(canary):
    """Draw pickles of a dictionary with an array that a function makes."""
    code = [f"touch {canary}", f"open({str(canary)!r}, 'w')", f"import os; os.mknod({canary!r})"]
    values = st.one_of(
        st.sampled_from([*EDGES, -1, None, True, "f8", "V1000000000", *code, str(canary), b"x"]),
        st.lists(st.sampled_from(EDGES), max_size=3).map(tuple),
    ).map(pushed)
    leaves = st.one_of(values, st.sampled_from([1, 4, *EDGES]).map(stored))

    def calls(inner):
        call = st.builds(called, st.sampled_from(FUNCTIONS), st.lists(inner, max_size=6))
        # Some objects also get a state.
        return call | st.builds(lambda made, state: made + state + b"b", call, inner)

    expressions = st.recursive(leaves, calls, max_leaves=8)
    return expressions.map(lambda part: b"\x80\x02}" + pushed("head.weight") + part + b"s.")


def write_zip(path, program):
    with zipfile.ZipFile(path, "w") as archive:
        contents = {"data.pkl": program, "version": b"3\n", "byteorder": b"little"}
        for name, content in {**contents, "data/0": bytes(16)}.items():
            archive.writestr(f"archive/{name}", content)


@pytest.mark.parametrize("is_zip", [True, False])
def test_no_pickle_runs_code(is_zip, folder):
    canary, path = folder / "canary", folder / "x.pth"

    @FUZZ
    @given(program=programs(canary))
    def check(program):
        write_zip(path, program) if is_zip else path.write_bytes(program)
        assert_read_or_refused(path)
        assert not canary.exists()

    check()


@pytest.mark.parametrize("is_zip", [True, False])
def test_damaged_files(is_zip, folder):
    path = folder / "x.pth"
    arrays = {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    torch.save({"model": arrays, "epoch": 1}, path, _use_new_zipfile_serialization=is_zip)
    assert read_all(path).keys() == {"model.a/kernel", "model.a/bias"}

    @FUZZ
    @given(contents=damaged([path.read_bytes()]))
    def check(contents):
        path.write_bytes(contents)
        assert_read_or_refused(path)

    check()
