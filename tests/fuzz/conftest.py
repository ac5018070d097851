"""How many cases there are, and what none of them may do."""

import os
import pathlib
import re

import pytest
from hypothesis import HealthCheck, Phase, settings

NUM_TESTS = 18
CASES = max(int(os.environ.get("FUZZ_CASES", "10000")) // NUM_TESTS, 1)
settings.register_profile(
    "fuzz",
    max_examples=CASES,
    # A case that takes as long as this hangs.
    deadline=5000,
    # In CI a failure is one of the change, and not of the day.
    derandomize="CI" in os.environ,
    database=None,
    # Explaining a failure traces each line, which is slow.
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("fuzz")
# The files have some kilobytes; TensorFlow, Keras and hypothesis take memory of their own.
MAX_MEMORY = 500 * 2**20


@pytest.fixture(autouse=True)
def memory_is_limited():
    """No case may take memory that its file does not have."""
    before = _memory("VmRSS")
    # Linux begins to count the peak anew.
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
