"""Tests of predictions past one process."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="the predictor is tested on every backend, the engines call it"
)
