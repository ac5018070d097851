"""Tests of serving."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="most exports are tested with TensorFlow, which serves them"
)
