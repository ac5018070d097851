"""The time that a training run waits for its data."""

import time

import tensorflow as tf


class TimedDataset:
    """Measure how long the reader of a dataset waits for batches.

    Args:
        dataset: a `tf.data.Dataset`.

    Example:
    >>> timed = TimedDataset(keras_vit.data.load("digits", "test", 16, batch_size=32))
    >>> batches = list(timed.dataset)
    >>> timed.seconds() > 0
    True
    """

    def __init__(self, dataset):
        self._seconds = 0.0
        # A zipped dataset requests the elements of its parts in order.
        timed = tf.data.Dataset.zip(_clock(), dataset, _clock()).map(self._measure)
        options = tf.data.Options()
        # Prefetching here would hide the wait.
        options.experimental_optimization.inject_prefetch = False
        self.dataset = timed.with_options(options)

    def _measure(self, before, batch, after):
        with tf.control_dependencies([tf.numpy_function(self._add, [before, after], tf.int64)]):
            return tf.nest.map_structure(tf.identity, batch)

    def _add(self, before, after):
        self._seconds += float(after - before)
        return 0

    def seconds(self):
        """Return the time waited so far."""
        return self._seconds


def _clock():
    # `tf.timestamp` is refused where operations must be deterministic.
    ticks = tf.data.Dataset.from_tensors(0).repeat()
    return ticks.map(lambda _: tf.numpy_function(time.perf_counter, [], tf.float64))
