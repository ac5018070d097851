"""Tests of the experiments."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="experiments call what is tested on every backend"
)
