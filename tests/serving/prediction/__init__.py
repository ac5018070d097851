"""Tests of predictions of many images, on each backend."""

import pytest

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch", reason="all predict")
