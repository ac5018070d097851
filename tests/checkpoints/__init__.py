"""Tests of checkpoint files."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="files are read and written in the same way on every backend"
)
