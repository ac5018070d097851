"""The `tf.data` pipeline from the examples of a source to batches of images.

    epochs -> examples of each epoch, shuffled, and an end mark -> numbered by position
        -> decoded in parallel, with a flag -> broken ones recorded and dropped -> batches
        -> labels checked, images mixed

A pass is one iteration over the dataset. A dataset that is not repeated has one epoch per pass: the
first pass is epoch 0, the second epoch 1. Each pass of a repeated dataset has all epochs.

The position of an example counts from 0 through all epochs. An epoch has one position more than
examples, for its end mark, whose position tells how many were read. Positions are the only source
of randomness: the seed of an image is `(seed, position)`, that of the order of an epoch
`(seed, -1 - epoch)`, and a mixed batch has the seed of its first image. So a run resumes at a step
by starting with its epoch and skipping the examples before it, and broken images keep their
positions although they are dropped.
"""

import dataclasses
import itertools
import numbers
import sys
from collections.abc import Callable

import tensorflow as tf

from keras_vit.core.arguments import check_integer, is_integer
from keras_vit.data.images.decoding import explain
from keras_vit.data.skipped import IN_A_LIST, Skipped
from keras_vit.data.sources.base import Source, not_among

# The number of the mark at the end of an epoch.
_END = -1
# Batches. Left to itself, TensorFlow fills half of the memory with them.
_PREFETCHED = 2


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """How the examples of a source become batches.

    Args:
        source: a `Source`.
        make_image: a function of the bytes of a file and a seed, an int64 tensor `(2,)`, that
            returns an image.
        read_image: a function as `make_image` that does only what fails if the file is broken.
        shape: shape of what `make_image` returns.
        batch_size: images in a batch.
        training: whether each epoch is shuffled.
        repeat: whether epochs follow one another without end, in full batches.
        start_step: number of batches to leave out at the start of a repeated dataset.
        seed: seed of the order and the augmentation.
        shard: `(index, count)`, the share of one worker.
        skipped: `Skipped`, which records what cannot be decoded.
        broken: numbers of examples that are known to be broken.
        mix: a function of images, labels and a seed, for the batches; `None` for none.
        one_hot: whether labels become soft labels.
    """

    source: Source
    make_image: Callable
    read_image: Callable
    shape: tuple[int, ...]
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
        """Return a dataset of `(images, labels)`."""
        passes = itertools.count()
        numbers = tf.data.Dataset.from_tensors(0).map(
            lambda _: tf.ensure_shape(tf.numpy_function(lambda: next(passes), [], tf.int64), ())
        )
        dataset = numbers.flat_map(self._one_pass)
        if self.repeat:
            endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            return dataset.apply(endless).prefetch(_PREFETCHED)
        dataset = dataset.prefetch(_PREFETCHED)
        # TensorFlow cannot know it of a dataset from which examples may be skipped; Keras asks, and
        # warns of data that ends unexpectedly.
        length = -(-self.source.num_examples // self.batch_size)
        dataset.cardinality = lambda: tf.constant(length, tf.int64)
        return dataset

    def _one_pass(self, number):
        """Return the batches of one pass."""
        return (
            self._examples(number)
            .map(self._make_image, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .map(self._record)
            .filter(lambda position, number, image, label, is_sound: is_sound)
            .batch(
                self.batch_size,
                drop_remainder=self.repeat,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            .map(self._finish)
        )

    def _examples(self, number):
        """Return the `(position, example)` of a pass; an example is `(number, payload, label)`."""
        if not self.repeat:
            return self._one_epoch(number)
        sound = self.source.num_examples - len(self.broken)
        first_epoch, rest = divmod(self.start_step * self.batch_size, max(sound, 1))
        examples = tf.data.Dataset.range(first_epoch, sys.maxsize).flat_map(self._one_epoch)
        if self.broken:
            examples = examples.filter(lambda _, example: not_among(self.broken, example[0]))
        # The marks of the epochs before are left out, those of the first epoch are not.
        return examples.skip(rest)

    def _one_epoch(self, epoch):
        # The order depends on the argument `seed` alone, not on the global one.
        tf.random.set_seed(1)
        examples = self.source.examples
        _, _, label = examples.element_spec
        end = (tf.constant(_END, tf.int64), "", tf.zeros(label.shape, label.dtype))
        if self.training:
            order = tf.random.stateless_uniform((), self._seed(-1 - epoch), None, None, tf.int64)
            examples = examples.shuffle(
                self.source.shuffle_buffer, order, reshuffle_each_iteration=False
            )
        # The end mark tells if a file of records is damaged.
        examples = examples.ignore_errors().concatenate(tf.data.Dataset.from_tensors(end))
        return examples.enumerate(epoch * self._epoch_length)

    @property
    def _epoch_length(self):
        """The number of positions of an epoch: the examples and the end mark."""
        return self.source.num_examples + 1

    def _make_image(self, position, example):
        """Return one element for each example, always: its image, or zeros and a flag."""
        number, payload, label = example

        def make(payload):
            image = self.make_image(self.source.read(payload), self._seed(position))
            return tf.ensure_shape(image, self.shape), True

        made = tf.data.Dataset.from_tensors(payload).map(make).ignore_errors()
        none = tf.data.Dataset.from_tensors((tf.zeros(self.shape), False))
        image, is_sound = made.concatenate(none).take(1).get_single_element()
        return position, number, image, label, is_sound, payload

    def _record(self, position, number, image, label, is_sound, payload):
        """Record an example that has no image, with the reason."""

        def record():
            # `tf.numpy_function` would lose zeros at the end of the payload.
            return tf.py_function(self._explain, [position, number, payload], tf.bool)

        done = tf.cond(is_sound, lambda: tf.constant(True), record)
        with tf.control_dependencies([done]):
            return position, number, image, label, tf.identity(is_sound)

    def _explain(self, position, number, payload):
        if number == _END:
            self.skipped.check_count(int(position) % self._epoch_length)
            return True
        seed, encoded = self._seed(position), tf.constant(b"")
        try:
            encoded = tf.convert_to_tensor(self.source.read(payload))
            self.read_image(encoded, seed)
            reason = "it could not be read before, but can be read now"
        except tf.errors.OpError as error:
            reason = explain(error, encoded.numpy())
        else:
            # The file is sound: this raises the error of an augmentation.
            self.make_image(encoded, seed)
        self.skipped.add(int(number), reason)
        return True

    def _finish(self, positions, numbers, images, labels, _):
        self._check_labels(numbers, labels)
        if self.one_hot and labels.shape.rank == 1:
            labels = tf.one_hot(labels, len(self.source.class_names))
        if self.mix is not None:
            images, labels = self.mix(images, labels, self._seed(positions[0]))
        return images, labels

    def _check_labels(self, numbers, labels):
        if labels.shape.rank != 1:
            # NaN marks a list with a wrong label.
            labels = tf.where(tf.reduce_any(tf.math.is_nan(labels), axis=1), IN_A_LIST, 0)
        is_wrong = (labels < 0) | (labels >= len(self.source.class_names))

        def refuse():
            first = tf.argmax(tf.cast(is_wrong, tf.int32))
            arguments = numbers[first], labels[first]
            return tf.numpy_function(self.skipped.refuse_label, arguments, tf.bool)

        tf.cond(tf.reduce_any(is_wrong), refuse, lambda: tf.constant(True))

    def _seed(self, position):
        """Return the seed of an image or a batch by its position, or of the order of an epoch.

        Positions count up from 0, orders down from -1; each worker has its own.
        """
        index, count = self.shard
        return tf.stack([tf.constant(self.seed, tf.int64), position * count + index])


def check_order(batch_size, repeat, start_step, skip, max_skipped, shard, seed=0):
    """Check the arguments of `load` that say which batches come, and in which order."""
    check_integer("seed", seed, 0)
    for name, value, least in (("batch_size", batch_size, 1), ("start_step", start_step, 0)):
        if not is_integer(value) or not least <= value < 2**31:
            raise ValueError(
                f"`{name}` must be a positive integer{'' if least else ' or 0'}, less than 2**31. "
                f"Received: {name}={value!r}"
            )
    if (start_step or len(skip)) and not repeat:
        raise ValueError(
            "`start_step` and `skip` are for a repeated dataset, `repeat=True`. "
            f"Received: start_step={start_step}, skip={skip!r}, repeat={repeat}"
        )
    if not isinstance(max_skipped, numbers.Real) or not 0 <= max_skipped <= 1:
        raise ValueError(
            f"`max_skipped` must be a share, from 0 to 1. Received: max_skipped={max_skipped}"
        )
    is_pair = isinstance(shard, (tuple, list)) and len(shard) == 2
    if not is_pair or not all(is_integer(value) for value in shard):
        raise ValueError(f"`shard` must be `(index, count)`. Received: shard={shard!r}")
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(
            f"`shard` must be `(index, count)` with 0 <= index < count. Received: shard={shard!r}"
        )
