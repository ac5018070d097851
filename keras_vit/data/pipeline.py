"""From the examples of a source to batches: in order, resumed, and without what is broken."""

import dataclasses
import os
import sys
from collections.abc import Callable

import tensorflow as tf

from keras_vit.data.images.headers import require
from keras_vit.data.skipped import Skipped
from keras_vit.data.sources.base import Source, not_among

# The number of what stands behind the last example of an epoch. It is left out like an image that
# cannot be decoded, and its place tells how many examples there were.
_END = -1
# A key of an example under way is its place in a pass, with the number of the pass before it.
_PASS = 2**44
# As many as TensorFlow would choose at most; known, it tells which examples must be done.
_IN_PARALLEL = os.cpu_count()
# Batches that are made in advance. Left to itself, TensorFlow fills half of the memory with them.
_PREFETCHED = 2


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """How the examples of a source become batches.

    Each pass over the dataset is an epoch of its own, the first with the order and the random
    numbers of epoch 0. A repeated dataset has the same epochs, one behind the other.

    Args:
        source: a `Source`.
        make_image: a function of the bytes of a file and a seed, an int64 tensor `(2,)`, that
            returns an image.
        image_size: `(height, width)` of the images.
        batch_size: images in a batch.
        training: whether each epoch is shuffled.
        repeat: whether the epochs follow one another without an end, in full batches.
        start_step: how many batches of a repeated dataset are left out at its start.
        broken: numbers of examples of a repeated dataset that are known to be broken. They keep
            their places, so that all others have the order and the seeds that they had.
        seed: of order and augmentation.
        shard: `(index, count)`, the part of one worker among so many.
        skipped: takes down what cannot be decoded.
        mix: a function of images, labels and a seed, for the batches; `None` for none.
        one_hot: whether labels become shares of classes.
    """

    source: Source
    make_image: Callable
    image_size: tuple[int, int]
    batch_size: int
    training: bool
    repeat: bool
    start_step: int
    seed: int
    shard: tuple[int, int]
    skipped: Skipped
    broken: tuple[int, ...] = ()
    mix: Callable | None = None
    one_hot: bool = False

    def batches(self):
        """A dataset of `(images, labels)`."""
        passes = _table()
        under_way = _table()
        dataset = tf.data.Dataset.from_tensors(0).map(lambda _: _count_pass(passes))
        dataset = dataset.flat_map(lambda number: self._one_pass(number * _PASS, under_way))
        if self.repeat:
            endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            return dataset.apply(endless).prefetch(_PREFETCHED)
        dataset = dataset.prefetch(_PREFETCHED)
        # TensorFlow cannot know it of a dataset from which examples may be skipped; Keras asks, and
        # warns of data that ends where it is told nothing.
        length = -(-self.source.num_examples // self.batch_size)
        dataset.cardinality = lambda: tf.constant(length, tf.int64)
        return dataset

    def _one_pass(self, first_key, under_way):
        """The batches of one pass, whose first example has that key."""
        if self.repeat:
            examples = self._endless_examples(first_key, under_way)
        else:
            epoch = first_key // _PASS
            examples = self._one_epoch(epoch).enumerate(first_key + epoch * self._places)
        batches = (
            # In order, whatever the options: what is missing is seen by the order.
            examples.map(
                lambda key, example: self._make_image(under_way, key, *example),
                num_parallel_calls=_IN_PARALLEL,
                deterministic=True,
            )
            # What is left out here stays under way.
            .ignore_errors()
            .batch(
                self.batch_size,
                drop_remainder=self.repeat,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            .map(lambda *batch: self._finish(under_way, first_key, *batch))
        )
        # Behind the last batch comes none, once it has been seen what was left out.
        end = tf.data.Dataset.from_tensors(first_key + _PASS)
        return batches.concatenate(
            end.flat_map(lambda key: batches.take(self._take_down(under_way, first_key, key)))
        )

    def _endless_examples(self, first_key, under_way):
        def goes_on(epoch):
            # An epoch of which nothing is left never makes a batch. All examples before it have
            # been begun, and all but the last of them are done.
            before = first_key + epoch * self._places - _IN_PARALLEL
            missing = _find_missing(under_way, first_key, before)
            return tf.numpy_function(self._is_tolerable, missing, tf.bool)

        sound = self.source.num_examples - len(self.broken)
        first_epoch, rest = divmod(self.start_step * self.batch_size, max(sound, 1))
        epochs = tf.data.Dataset.range(first_epoch, sys.maxsize).take_while(goes_on)
        examples = epochs.flat_map(self._one_epoch)
        examples = examples.enumerate(first_key + first_epoch * self._places)
        if self.broken:
            examples = examples.filter(lambda key, example: not_among(self.broken, example[0]))
        return examples.skip(rest)

    def _one_epoch(self, epoch):
        # The order depends on the seed alone, not on the global one.
        tf.random.set_seed(1)
        examples = self.source.examples
        _, _, label = examples.element_spec
        end = (tf.constant(_END, tf.int64), "", tf.zeros(label.shape, label.dtype))
        if self.training:
            order = tf.random.stateless_uniform((), self._seed(-1 - epoch), None, None, tf.int64)
            examples = examples.shuffle(
                self.source.shuffle_buffer, order, reshuffle_each_iteration=False
            )
        return examples.concatenate(tf.data.Dataset.from_tensors(end))

    @property
    def _places(self):
        """Places in an epoch: those of the examples and that of its end."""
        return self.source.num_examples + 1

    def _make_image(self, under_way, key, number, payload, label):
        with tf.control_dependencies([under_way.insert(key, number)]):
            is_example = require(number != _END, "The end of an epoch is no image")
        with tf.control_dependencies([is_example]):
            payload = tf.identity(payload)
        image = self.make_image(self.source.read(payload), self._seed(key % _PASS))
        image = tf.ensure_shape(image, (*self.image_size, 3))
        with tf.control_dependencies([image]):
            is_done = under_way.remove(key[None])
        with tf.control_dependencies([is_done]):
            return tf.identity(key), number, image, label

    def _finish(self, under_way, first_key, keys, numbers, images, labels):
        with tf.control_dependencies([self._take_down(under_way, first_key, keys[-1])]):
            labels = tf.identity(labels)
        self._check_labels(numbers, labels)
        num_classes = len(self.source.class_names)
        if self.one_hot and labels.shape.rank == 1:
            labels = tf.one_hot(labels, num_classes)
        if self.mix is not None:
            images, labels = self.mix(images, labels, self._seed(keys[0] % _PASS))
        return images, labels

    def _take_down(self, under_way, first_key, key):
        """Takes down what was left out before the example with a key; returns 0."""
        missing = _find_missing(under_way, first_key, key)

        def take_down():
            with tf.control_dependencies([under_way.remove(missing[0])]):
                return tf.numpy_function(_returning(self._take_down_numbers), missing, tf.int64)

        return tf.cond(tf.size(missing[0]) > 0, take_down, lambda: tf.constant(0, tf.int64))

    def _take_down_numbers(self, keys, numbers):
        is_end = numbers == _END
        self.skipped.add(numbers[~is_end])
        for place in keys[is_end] % _PASS % self._places:
            # Not even begun: a file of records is damaged, or a cache cannot be written.
            self.skipped.check_count(place)

    def _is_tolerable(self, keys, numbers):
        """Whether a run may go on; if not, the end of its dataset says why."""
        try:
            self._take_down_numbers(keys, numbers)
        except ValueError:
            return False
        return True

    def _check_labels(self, numbers, labels):
        if labels.shape.rank != 1:
            return
        is_wrong = (labels < 0) | (labels >= len(self.source.class_names))

        def refuse():
            first = tf.argmax(tf.cast(is_wrong, tf.int32))
            arguments = [numbers[first], labels[first]]
            return tf.numpy_function(_returning(self.skipped.refuse_label), arguments, tf.int64)

        tf.cond(tf.reduce_any(is_wrong), refuse, lambda: tf.constant(0, tf.int64))

    def _seed(self, place):
        """The seed of an image or of a batch, by its place in all passes, or of an epoch's order.

        Places are counted from 0, orders downwards from -1; each worker has its own.
        """
        index, count = self.shard
        return tf.stack([tf.constant(self.seed, tf.int64), place * count + index])


def _table():
    """A table in TensorFlow's memory, which the operations of a dataset can write to."""
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=0)


def _count_pass(passes):
    key = tf.constant(0, tf.int64)
    number = passes.lookup(key)
    with tf.control_dependencies([passes.insert(key, number + 1)]):
        return tf.ensure_shape(number, ())


def _find_missing(under_way, first_key, key):
    """Keys and numbers of what has been begun from a first key on and before another."""
    keys, numbers = under_way.export()
    keys, numbers = tf.reshape(keys, (-1,)), tf.reshape(numbers, (-1,))
    missing = (keys >= first_key) & (keys < key)
    return keys[missing], numbers[missing]


def _returning(function):
    """The function as TensorFlow wants it, with something to return."""

    def call(*arguments):
        function(*arguments)
        return 0

    return call
