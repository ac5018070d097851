"""Tests of the command line."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="commands call what is tested on every backend"
)
