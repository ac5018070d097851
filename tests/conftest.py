"""Deterministic tests, whatever ran before them."""

import keras
import pytest


@pytest.fixture(autouse=True)
def same_seed():
    keras.utils.set_random_seed(0)


def pytest_fixture_setup(fixturedef):
    # What is made once for several tests is made before `same_seed` is asked for.
    if fixturedef.scope != "function":
        keras.utils.set_random_seed(0)
