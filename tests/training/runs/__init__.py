"""Tests of the files of a run."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="files are written and read in the same way on every backend"
)
