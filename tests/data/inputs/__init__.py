"""Tests of the images that a user names."""

import pytest

pytestmark = pytest.mark.backends(
    "tensorflow", reason="tf.data reads images in the same way on every backend"
)
