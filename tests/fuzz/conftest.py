"""What no case may do."""

import contextlib
import pathlib
import re

import pytest

# The files have some kilobytes; TensorFlow, Keras and hypothesis take memory of their own.
MAX_MEMORY = 500 * 2**20


@pytest.fixture(autouse=True)
def memory_is_limited():
    """No case may take memory that its file does not have."""
    before = _memory("VmRSS")
    # Linux begins to count the peak anew, where a sandbox lets it.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    yield
    assert _memory("VmHWM") - before < MAX_MEMORY


def _memory(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", status)[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory that the cases of a file share."""
    return tmp_path_factory.mktemp("fuzz")
