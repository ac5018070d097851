"""How many cases there are, and what none of them may do."""

import os
import resource

import pytest
from hypothesis import HealthCheck, Phase, settings

NUM_TESTS = 17
CASES = int(os.environ.get("FUZZ_CASES", "10000")) // NUM_TESTS
settings.register_profile(
    "fuzz",
    max_examples=CASES,
    # A case that takes as long as this hangs.
    deadline=5000,
    derandomize=CASES <= 1000,
    database=None,
    # To explain a failure takes a trace of each line.
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("fuzz")
# The files have some kilobytes; TensorFlow, Keras and hypothesis take memory of their own.
MAX_MEMORY = 500 * 2**20


@pytest.fixture(autouse=True)
def memory_is_limited():
    """No case may take memory that its file does not have."""
    before = _peak()
    yield
    assert _peak() - before < MAX_MEMORY


def _peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory that the cases of a file share."""
    return tmp_path_factory.mktemp("fuzz")
