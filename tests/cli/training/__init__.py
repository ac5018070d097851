"""Tests of what `keras-vit train` does besides training one model."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="commands call what is tested on every backend"
)
