"""Which images of a parallel `tf.data` pipeline failed.

`Dataset.ignore_errors` drops an example that cannot be decoded, but does not say which one it was.
So `InFlight.run` inserts each example into a table before it is decoded, and removes it afterwards.
What failed in between stays there:

    insert(key, number)  ->  decode, crop, resize, ...  ->  remove(key)  ->  ignore_errors

The examples are decoded in parallel, but their results come in order (`deterministic=True`). When
the example with the key `k` has come out, every example with a smaller key is done, so those that
are still in the table have failed. `report(first_key, k)` records them in `Skipped` and removes
them. The pipeline calls it with the last key of each batch, and once more after the last batch.

Three conventions:

- In-flight key: pass number * 2**44 + position. A pass is one iteration over the dataset, and the
  position counts examples through all epochs of the pass. Two iterators over one dataset share the
  table; each looks only at the keys of its own pass, from `first_key` on.
- End-of-epoch sentinel: an element with the number `END` after the last example of each epoch. It
  always fails, so it is found like a broken image, and its position in the epoch is the number of
  examples that were read. If that is not the number of examples of the source, a file is damaged.
- An epoch without a single good image makes no batch, and would be repeated without end. So
  `is_tolerable` looks at the table before each epoch of a repeated dataset. The examples that may
  not be done by then are the last `IN_PARALLEL`, the greatest number that is decoded at once.

Prefetched batches change nothing: `report` runs where the batch is made, not where it is used.
"""

import os

import tensorflow as tf

from keras_vit.data.images.headers import require

END = -1
# As many as TensorFlow would choose at most.
IN_PARALLEL = os.cpu_count()
_KEYS_PER_PASS = 2**44


def first_key_of(pass_number):
    """Return the key of position 0 of a pass."""
    return pass_number * _KEYS_PER_PASS


def position_of(key):
    """Return the position of a key in its pass."""
    return key % _KEYS_PER_PASS


class InFlight:
    """The examples of a pipeline that have been started and not finished.

    Args:
        skipped: `Skipped` that records what failed.
        epoch_length: number of examples of an epoch, with the sentinel.
    """

    def __init__(self, skipped, epoch_length):
        self._skipped, self._epoch_length = skipped, epoch_length
        # In the memory of TensorFlow, so that operations of a dataset can write to it.
        self._numbers = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=0)

    def run(self, key, number, make_image, payload):
        """Return `make_image(payload)`, during which the example is in flight."""
        with tf.control_dependencies([self._numbers.insert(key, number)]):
            is_example = require(number != END, "The end of an epoch is not an image")
        with tf.control_dependencies([is_example]):
            image = make_image(tf.identity(payload))
        with tf.control_dependencies([image]):
            is_done = self._numbers.remove(key[None])
        with tf.control_dependencies([is_done]):
            return tf.identity(image)

    def report(self, first_key, key):
        """Record the examples that failed from one key on and before another; return 0.

        The returned tensor is for control dependencies.
        """
        keys, numbers = self._unfinished(first_key, key)

        def record():
            with tf.control_dependencies([self._numbers.remove(keys)]):
                return call(self._record, keys, numbers)

        return tf.cond(tf.size(keys) > 0, record, lambda: tf.constant(0, tf.int64))

    def is_tolerable(self, first_key, key):
        """Return whether so few examples failed that a run may continue, as a boolean tensor.

        If it may not, its dataset ends, and `report` raises the error.
        """
        return tf.numpy_function(
            self._is_tolerable, self._unfinished(first_key, key - IN_PARALLEL), tf.bool
        )

    def _unfinished(self, first_key, key):
        keys, numbers = self._numbers.export()
        keys, numbers = tf.reshape(keys, (-1,)), tf.reshape(numbers, (-1,))
        among = (keys >= first_key) & (keys < key)
        return keys[among], numbers[among]

    def _record(self, keys, numbers):
        is_end = numbers == END
        self._skipped.add(numbers[~is_end])
        for place in position_of(keys[is_end]) % self._epoch_length:
            self._skipped.check_count(place)

    def _is_tolerable(self, keys, numbers):
        try:
            self._record(keys, numbers)
        except ValueError:
            return False
        return True


def call(function, *tensors):
    """Call a Python function with the values of tensors, and return the tensor 0."""

    def call_and_return(*values):
        function(*values)
        return 0

    return tf.numpy_function(call_and_return, tensors, tf.int64)
