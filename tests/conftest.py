"""Deterministic tests, whatever ran before them."""

import contextlib
import logging
import unittest.mock

import keras
import pytest

without_clearing_caches = contextlib.nullcontext()

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    # With each seed TensorFlow forgets the kernels of all operations, to find them again for longer
    # than most tests take. What is random in the package has seeds of Keras's or its own.
    without_clearing_caches = unittest.mock.patch.object(tf.random, "set_seed")
    # Graphs are small here and run a few times: to optimise them takes longer than to run them.
    # Those of processes that tests start, and of the demonstration, are optimised.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def set_seed():
    with without_clearing_caches:
        keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def same_seed():
    set_seed()


@pytest.fixture(autouse=True)
def no_log_of_a_command():
    yield
    # It would go to the standard error of that test, which is closed.
    logging.getLogger("keras_vit").handlers.clear()


def pytest_fixture_setup(fixturedef):
    # What is made once for several tests is made before `same_seed` is asked for.
    if fixturedef.scope != "function":
        set_seed()
