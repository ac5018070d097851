"""Tests of analyses and figures."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="figures are drawn from the same scores on every backend"
)
