"""Deterministic tests, whatever ran before them."""

import logging

import keras
import pytest

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    # Graphs are small here and run a few times: to optimise them takes longer than to run them.
    # Those of processes that tests start, and of the demonstration, are optimised.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@pytest.fixture(autouse=True)
def same_seed():
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def no_log_of_a_command():
    yield
    # It would go to the standard error of that test, which is closed.
    logging.getLogger("keras_vit").handlers.clear()


def pytest_fixture_setup(fixturedef):
    # What is made once for several tests is made before `same_seed` is asked for.
    if fixturedef.scope != "function":
        keras.utils.set_random_seed(0)
