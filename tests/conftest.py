"""Deterministic tests, whatever ran before them, on the backends that they are for."""

import contextlib
import gc
import importlib
import logging
import unittest.mock

import pytest

# Fixtures hold no tests, and some import packages that are not installed everywhere.
collect_ignore = ["fixtures"]


def pytest_collection():
    """Prepare this process, unless it only hands out the tests: the others would wait for it."""
    import keras

    if keras.backend.backend() == "tensorflow":
        _prepare_tensorflow()


def _prepare_tensorflow():
    import tensorflow as tf

    # Graphs are small here and run a few times: to optimize them takes longer than to run them.
    # Those of processes that tests start, and of the demonstration, are optimized.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # Keras's training sums gradients over the devices also where there is one. TensorFlow keeps the
    # gradient of each such sum for good, and the graph of the training with it: 9 GB in the end.
    add_over_devices = tf.distribute.ReplicaContext.all_reduce

    def add_over_several_devices(context, operation, value, options=None):
        if context.num_replicas_in_sync == 1:
            return value
        return add_over_devices(context, operation, value, options)

    tf.distribute.ReplicaContext.all_reduce = add_over_several_devices


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Give all tests of a folder the `pytestmark` of its `__init__.py`, and skip other backends."""
    import keras

    nodes = dict.fromkeys(node for item in items for node in item.listchain())
    for node in nodes:
        if isinstance(node, pytest.Package):
            parts = node.path.relative_to(node.config.rootpath).parts
            package = importlib.import_module(".".join(parts))
            marks = getattr(package, "pytestmark", [])
            for mark in marks if isinstance(marks, list) else [marks]:
                node.add_marker(mark)
    for item in items:
        # The mark that is closest to a test counts.
        mark = item.get_closest_marker("backends")
        if mark is not None and keras.backend.backend() not in mark.args:
            item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))


def pytest_collection_finish():
    # Otherwise each garbage collection goes through all of Keras, TensorFlow and the tests.
    gc.collect()
    gc.freeze()


def set_seed():
    import keras

    without_clearing_caches = contextlib.nullcontext()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # With each seed TensorFlow forgets the kernels of all operations, to find them again for
        # longer than most tests take. What is random in the package has seeds of its own.
        without_clearing_caches = unittest.mock.patch.object(tf.random, "set_seed")
    with without_clearing_caches:
        keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def same_seed():
    set_seed()


@pytest.fixture(autouse=True)
def no_log_of_a_command():
    yield
    logger = logging.getLogger("keras_vit")
    # It would go to the standard error of that test, which is closed.
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


def pytest_fixture_setup(fixturedef):
    # Fixtures of modules are made before `same_seed` is requested.
    if fixturedef.scope != "function":
        set_seed()
