"""Deterministic tests, whatever ran before them."""

import keras
import pytest


@pytest.fixture(autouse=True)
def same_seed():
    keras.utils.set_random_seed(0)
