"""From the examples of a source to batches: in order, resumed, and without what is broken."""

import dataclasses
import sys
from collections.abc import Callable

import tensorflow as tf

from keras_vit.data.skipped import Skipped
from keras_vit.data.source import Source, not_among

# The number of what stands behind the last example of an epoch, so that whatever is missing before
# it shows, even if it is all.
_END = -1
# A key of an example under way is its place in a pass, with the number of the pass before it.
_PASS = 2**44
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
        examples = tf.data.Dataset.from_tensors(0).map(lambda _: _count_pass(passes))
        examples = examples.flat_map(self._one_pass)

        def make_image(pass_number, place, number, payload, label):
            with tf.control_dependencies([under_way.insert(pass_number * _PASS + place, number)]):
                image = self._make_image(number, payload, place)
            return pass_number, place, number, image, label

        batches = (
            # In order, whatever the options: what is missing is seen by the order.
            examples.map(make_image, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            # What is left out here is found missing in the next batch, or behind the last example.
            .ignore_errors()
            .filter(lambda *example: self._is_no_end(under_way, *example))
            .batch(self.batch_size, drop_remainder=self.repeat)
            .map(lambda *batch: self._finish(under_way, *batch))
        )
        if self.repeat:
            endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            return batches.apply(endless).prefetch(_PREFETCHED)
        batches = batches.prefetch(_PREFETCHED)
        # TensorFlow cannot know it of a dataset from which examples may be skipped; Keras asks, and
        # warns of data that ends where it is told nothing.
        length = -(-self.source.num_examples // self.batch_size)
        batches.cardinality = lambda: tf.constant(length, tf.int64)
        return batches

    def _one_pass(self, pass_number):
        """Examples with the number of the pass and their place in all of the passes."""
        # The order depends on the seed alone, not on the global one.
        tf.random.set_seed(1)
        places = self.source.num_examples + 1
        if not self.repeat:
            examples = self._one_epoch(pass_number).enumerate(pass_number * places)
        else:
            sound = self.source.num_examples - len(self.broken)
            first_epoch, rest = divmod(self.start_step * self.batch_size, max(sound, 1))
            epochs = tf.data.Dataset.range(first_epoch, sys.maxsize)
            examples = epochs.flat_map(self._one_epoch)
            examples = examples.enumerate(first_epoch * places)
            if self.broken:
                examples = examples.filter(
                    lambda place, example: not_among(self.broken, example[0])
                )
            examples = examples.skip(rest)
        return examples.map(lambda place, example: (pass_number, place, *example))

    def _one_epoch(self, epoch):
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

    def _make_image(self, number, payload, place):
        def make():
            image = self.make_image(self.source.read(payload), self._seed(place))
            return tf.ensure_shape(image, (*self.image_size, 3))

        return tf.cond(number == _END, lambda: tf.zeros((*self.image_size, 3)), make)

    def _is_no_end(self, under_way, pass_number, place, number, image, label):
        """Whether it is an example, which then is no longer under way."""
        key = pass_number * _PASS + place

        def find_missing():
            self._find_missing(under_way, key)
            # Not even begun: a file of records is damaged, or a cache cannot be written.
            number_read = place % (self.source.num_examples + 1)
            return tf.numpy_function(
                lambda count: self.skipped.check_count(count) or False, [number_read], tf.bool
            )

        with tf.control_dependencies([under_way.remove(key[None])]):
            return tf.cond(number == _END, find_missing, lambda: True)

    def _finish(self, under_way, pass_numbers, places, numbers, images, labels):
        self._find_missing(under_way, pass_numbers[-1] * _PASS + places[-1])
        self._check_labels(numbers, labels)
        num_classes = len(self.source.class_names)
        if self.one_hot and labels.shape.rank == 1:
            labels = tf.one_hot(labels, num_classes)
        if self.mix is not None:
            images, labels = self.mix(images, labels, self._seed(places[0]))
        return images, labels

    def _find_missing(self, under_way, last):
        """Examples that should have come before the last one of a batch have been left out."""
        keys, numbers = under_way.export()
        keys, numbers = tf.reshape(keys, (-1,)), tf.reshape(numbers, (-1,))
        missing = (keys < last) & (keys // _PASS == last // _PASS)

        def take_down():
            with tf.control_dependencies([under_way.remove(keys[missing])]):
                return tf.numpy_function(_returning(self.skipped.add), [numbers[missing]], tf.int64)

        tf.cond(tf.reduce_any(missing), take_down, lambda: tf.constant(0, tf.int64))

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


def _returning(function):
    """The function as TensorFlow wants it, with something to return."""

    def call(*arguments):
        function(*arguments)
        return 0

    return call
