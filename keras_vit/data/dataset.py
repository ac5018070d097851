"""`Dataset`: make batches of decoded and augmented images from the examples of a `Source`.

    for each epoch: shuffle the examples -> append an end-of-epoch sentinel -> number by position
        -> decode chunks in parallel -> record and drop broken images
        -> batch -> check labels, mix images

A pass is one iteration over the batches. Without `repeat`, each pass is one epoch: the first pass
is epoch 0, the second pass is epoch 1. With `repeat`, each pass goes through all epochs.

Positions count from 0 through all epochs. Each epoch has one position per example, and one for the
sentinel; the sentinel's position shows how many examples were read. All random numbers are drawn
from positions: the seed of an image is `(seed, position)`, the seed of the order of an epoch is
`(seed, -1 - epoch)`, and a mixed batch has the seed of its first image. So a run can resume at any
step: it starts with the epoch of the step, and skips the examples of earlier steps. If an image is
broken and dropped, the positions of the other images do not change.
"""

import dataclasses
import functools
import itertools
import numbers
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vit.core.arguments import check_integer
from keras_vit.data.images.decoding import explain
from keras_vit.data.images.geometry import ImageMaker
from keras_vit.data.left_out import INVALID_IN_LIST, Skipped
from keras_vit.data.sources.feature_source import FeatureMaker, compute_features, feature_source
from keras_vit.data.sources.source import Source, not_among

# The number of the end-of-epoch sentinel.
_END = -1
# Number of examples in a chunk. Setting up a chunk takes as long as decoding two images.
_CHUNK = 64
# Number of batches to prefetch. By default, TensorFlow prefetches until half of the memory is full.
_PREFETCHED = 2


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Information about the batches that `keras_vit.data.load` returns, in their attribute `info`.

    The results of `map`, `take`, `batch` and `prefetch` do not have this attribute: keep a
    reference to `info`, which stays valid.

    Args:
        class_names: tuple of the names of the classes, by label.
        num_examples: number of images of this worker in one epoch, including broken images.
        skipped: the images that could not be decoded so far: `len(skipped)` is their number,
            `skipped.reasons` has the reasons. `skipped` grows while batches are read.
        left_out: `collections.Counter` of the files that are not images, by reason.
        dataset: the `Dataset` that made the batches.
    """

    class_names: tuple[str, ...]
    num_examples: int
    skipped: Skipped
    left_out: dict
    dataset: "Dataset"


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The examples of a source, with all settings for making batches.

    Args:
        source: the `Source` of all examples.
        examples: the `Source` to read: all examples or one worker's share, possibly cached.
        maker: an `ImageMaker`, or an object with the same methods.
        batch_size: images per batch.
        training: whether each epoch is shuffled.
        repeat: whether to repeat epochs without end; all batches are then full.
        seed: seed of the order and the augmentation.
        shard: `(index, count)`, the share of one worker.
        max_skipped: greatest share of images that may be skipped; ten images always may be.
        one_hot: whether to turn labels into one-hot vectors.
        balanced: whether to repeat the images of small classes.
        start_step: number of batches to skip at the start of a repeated dataset.
        skip: ids of images that are known to be broken, or a dictionary from ids to reasons.
        finish: function of the batches and `start_step` that returns changed batches, such as
            batches with masked patches; `None` for no change.

    Raises:
        ValueError: if an argument is out of range, or there is no image to read.

    Example:
    >>> digits = keras_vit.data.load("digits", "test", image_size=16, batch_size=32).info.dataset
    >>> larger = dataclasses.replace(digits, batch_size=100).batches()
    >>> [len(labels) for _, labels in larger]
    [100, 100, 100, 59]
    """

    source: Source
    examples: Source
    maker: ImageMaker
    batch_size: int
    training: bool = False
    repeat: bool = False
    seed: int = 0
    shard: tuple[int, int] = (0, 1)
    max_skipped: float = 0.1
    one_hot: bool = False
    balanced: bool = False
    start_step: int = 0
    skip: dict[str, str] | tuple[str, ...] = ()
    finish: Callable | None = None

    def __post_init__(self):
        check_integer("batch_size", self.batch_size, 1)
        check_integer("start_step", self.start_step, 0)
        if self.start_step and not self.repeat:
            raise ValueError(
                "`start_step` is for a repeated dataset, `repeat=True`. "
                f"Received: start_step={self.start_step}, repeat={self.repeat}"
            )
        index, count = self.shard
        if not 0 <= index < count:
            raise ValueError(
                "`shard` must be `(index, count)` with 0 <= index < count. "
                f"Received: shard={self.shard}"
            )
        if not isinstance(self.max_skipped, numbers.Real) or not 0 <= self.max_skipped <= 1:
            raise ValueError(
                "`max_skipped` must be a share, from 0 to 1. "
                f"Received: max_skipped={self.max_skipped}"
            )
        if not isinstance(self.skip, dict):
            object.__setattr__(self, "skip", dict.fromkeys(self.skip, "skipped before"))

    @property
    def class_names(self):
        """The names of the classes, by label."""
        return self.source.class_names

    @property
    def num_examples(self):
        """The number of images of all workers in one epoch, including broken images."""
        return self._repeated[0].num_examples

    @functools.cached_property
    def _repeated(self):
        """`source` and `examples`, with images of small classes repeated if `balanced` is true."""
        sources = self.source, self.examples
        return tuple(source.balanced() for source in sources) if self.balanced else sources

    def from_step(self, step, skip=()):
        """Return the same dataset from a step on; `skip` has the images skipped before the step."""
        return dataclasses.replace(self, start_step=step, skip=skip)

    def select(self, numbers):
        """Return a dataset of only the examples with these numbers; their order does not change."""
        excluded = np.setdiff1d(self.source.numbers, numbers)
        sources = {name: getattr(self, name).without(excluded) for name in ("source", "examples")}
        return dataclasses.replace(self, **sources)

    def with_features(self, extract: Callable) -> "Dataset":
        """Compute the features of all images once, and return a dataset of features and labels.

        Args:
            extract: function from a batch of images to an array with one row per image.
        """
        one_pass = {"training": False, "repeat": False, "one_hot": False, "balanced": False}
        images = dataclasses.replace(self, **one_pass, start_step=0, skip={}).batches()
        features, labels = compute_features(images, extract)
        skipped = images.info.skipped.reasons
        examples = feature_source(self.examples, features, labels, skipped)
        maker = FeatureMaker(features.shape[1:])
        return dataclasses.replace(self, examples=examples, maker=maker, skip=skipped)

    def standardized(self, mean, deviation):
        """Return a dataset of the same images, with `(labels - mean) / deviation` as labels."""

        def standardize(number, payload, label):
            scaled = (tf.cast(label, "float64") - mean) / deviation
            return number, payload, tf.cast(scaled, "float32")

        labels = {"read_range": None, "read_numbers": None}
        labels["examples"] = self.examples.examples.map(standardize)
        return dataclasses.replace(self, examples=dataclasses.replace(self.examples, **labels))

    def batches(self):
        """Return the batches, a `tf.data.Dataset` with the attributes `class_names` and `info`."""
        _, examples = self._repeated
        all_broken = self.source.find_numbers(self.skip)
        broken = examples.numbers[np.isin(examples.numbers, all_broken)].tolist()
        if examples.num_examples <= len(broken):
            raise ValueError(
                "Each worker must have an image that can be decoded. Received: "
                f"{examples.num_examples} images for shard={self.shard}, {len(broken)} of them "
                "cannot be decoded"
            )
        reasons = {id: self.skip[id] for id in map(self.source.find_id, all_broken)}
        skipped = Skipped(examples, self.max_skipped, reasons)
        batches = _Reader(self, examples, skipped, tuple(broken)).batches()
        if self.finish is not None:
            batches = self.finish(batches, self.start_step)
        batches.class_names = self.class_names
        batches.info = DatasetInfo(
            self.class_names, examples.num_examples, skipped, self.source.left_out, self
        )
        return batches


class _Reader:
    """Read the examples of a `Dataset`.

    Args:
        dataset: the `Dataset`.
        examples: the `Source` to read.
        skipped: the `Skipped` that records images that cannot be decoded.
        broken: tuple of the numbers of examples that are known to be broken.
    """

    def __init__(self, dataset, examples, skipped, broken):
        self.dataset, self.source, self.skipped = dataset, examples, skipped
        self.broken, self.make_image = broken, dataset.maker.make()
        self.mix = dataset.maker.mixing()
        # One position per example, and one for the sentinel.
        self.epoch_length = self.source.num_examples + 1

    def batches(self):
        """Return a `tf.data.Dataset` of `(images, labels)`."""
        passes = itertools.count()
        numbers = tf.data.Dataset.from_tensors(0).map(
            lambda _: tf.ensure_shape(tf.numpy_function(lambda: next(passes), [], tf.int64), ())
        )
        batches = numbers.flat_map(self._one_pass)
        if self.dataset.repeat:
            endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            return batches.apply(endless).prefetch(_PREFETCHED)
        batches = batches.prefetch(_PREFETCHED)
        # TensorFlow cannot compute the length, as examples may be skipped. Without a length, Keras
        # warns that the data ended unexpectedly.
        length = -(-self.source.num_examples // self.dataset.batch_size)
        batches.cardinality = lambda: tf.constant(length, tf.int64)
        return batches

    def _one_pass(self, number):
        """Return the batches of one pass."""
        return (
            self._examples(number)
            .batch(min(self.dataset.batch_size, _CHUNK))
            # Read one chunk to its end before the next one, to keep the order of the examples.
            .interleave(
                self._make_images,
                block_length=sys.maxsize,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            .map(self._record_broken)
            .filter(lambda is_image, *_: is_image)
            .map(lambda _, *example: example)
            .batch(
                self.dataset.batch_size,
                drop_remainder=self.dataset.repeat,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            .map(self._make_batch)
        )

    def _examples(self, number):
        """Return the pairs `(position, (number, payload, label))` of a pass."""
        if not self.dataset.repeat:
            return self._one_epoch(number)
        num_decodable = self.source.num_examples - len(self.broken)
        first_epoch, rest = divmod(self.dataset.start_step * self.dataset.batch_size, num_decodable)
        examples = tf.data.Dataset.range(first_epoch, sys.maxsize).flat_map(self._one_epoch)
        if self.broken:
            examples = examples.filter(lambda _, example: not_among(self.broken, example[0]))
        return examples.skip(rest)

    def _one_epoch(self, epoch):
        # With a fixed global seed, the order depends only on the argument `seed`.
        tf.random.set_seed(1)
        examples = self.source.examples
        _, _, label = examples.element_spec
        end = (tf.constant(_END, tf.int64), "", tf.zeros(label.shape, label.dtype))
        if self.dataset.training:
            order = tf.random.stateless_uniform((), self._seed(-1 - epoch), None, None, tf.int64)
            examples = examples.shuffle(
                self.source.shuffle_buffer, order, reshuffle_each_iteration=False
            )
        # If a file is damaged, its remaining examples are missing, and the sentinel comes early.
        examples = examples.ignore_errors().concatenate(tf.data.Dataset.from_tensors(end))
        numbered = examples.enumerate(epoch * self.epoch_length)
        # Drop the sentinel at its normal position. If it comes early, `_explain` raises an error.
        last = (epoch + 1) * self.epoch_length - 1
        return numbered.filter(lambda position, example: position != last)

    def _make_images(self, positions, examples):
        """Return a dataset of the decodable examples of a chunk, followed by an end element.

        `ignore_errors` drops the examples that cannot be decoded. Each element lists the examples
        that were dropped directly before it.
        """
        numbers, payloads, labels = examples
        shape, count = self.dataset.maker.shape, tf.size(positions, tf.int64)

        def make(index):
            image = self.make_image(self.source.read(payloads[index]), self._seed(positions[index]))
            return index, tf.ensure_shape(image, shape)

        def add_example(previous, element):
            index, image = element
            is_image = index < count
            first, valid = previous + 1, tf.minimum(index, count - 1)
            broken = positions[first:index], numbers[first:index], payloads[first:index]
            example = positions[valid], numbers[valid], image, labels[valid]
            return index, (is_image, broken, example)

        images = tf.data.Dataset.range(count).map(make).ignore_errors()
        end = tf.data.Dataset.from_tensors((count, tf.zeros(shape)))
        return images.concatenate(end).scan(tf.constant(-1, tf.int64), add_example)

    def _record_broken(self, is_image, broken, example):
        """Record the broken examples before this element, with reasons."""

        def record():
            # `tf.numpy_function` would drop zeros at the end of a payload.
            return tf.py_function(self._explain_all, broken, tf.bool)

        is_any = tf.size(broken[0]) > 0
        with tf.control_dependencies([tf.cond(is_any, record, lambda: tf.constant(True))]):
            return tf.identity(is_image), *example

    def _explain_all(self, positions, numbers, payloads):
        for position, number, payload in zip(positions, numbers, payloads, strict=True):
            self._explain(position, number, payload)
        return True

    def _explain(self, position, number, payload):
        if number == _END:
            self.skipped.end_of_epoch(int(position) % self.epoch_length)
            return
        seed, encoded = self._seed(position), tf.constant(b"")
        try:
            encoded = tf.convert_to_tensor(self.source.read(payload))
            self.dataset.maker.read(encoded, seed)
            reason = "it could not be read before, but can be read now"
        except tf.errors.OpError as error:
            reason = explain(error, encoded.numpy())
        else:
            # The file can be decoded. If an augmentation failed, this call raises its error again.
            self.make_image(encoded, seed)
        self.skipped.add(int(number), reason)

    def _make_batch(self, positions, numbers, images, labels):
        self._check_labels(numbers, labels)
        if self.dataset.one_hot and labels.shape.rank == 1:
            labels = tf.one_hot(labels, len(self.source.class_names))
        if self.mix is not None:
            images, labels = self.mix(images, labels, self._seed(positions[0]))
        return images, labels

    def _check_labels(self, numbers, labels):
        if labels.shape.rank != 1:
            # `multi_hot` returns NaN for all classes if one label of an image is invalid.
            labels = tf.where(tf.reduce_any(tf.math.is_nan(labels), axis=1), INVALID_IN_LIST, 0)
        is_wrong = (labels < 0) | (labels >= len(self.source.class_names))

        def refuse():
            first = tf.argmax(tf.cast(is_wrong, tf.int32))
            arguments = numbers[first], labels[first]
            return tf.numpy_function(self.skipped.refuse_label, arguments, tf.bool)

        tf.cond(tf.reduce_any(is_wrong), refuse, lambda: tf.constant(True))

    def _seed(self, position):
        """Return the seed of an image or a batch by its position, or of the order of an epoch.

        Images use the numbers from 0 up, and orders the numbers from -1 down, so that their seeds
        differ. The seeds of different workers also differ.
        """
        index, count = self.dataset.shard
        return tf.stack([tf.constant(self.dataset.seed, tf.int64), position * count + index])


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
        # `zip` reads its datasets in order: a clock, the batch, and a clock.
        timed = tf.data.Dataset.zip(_clock(), dataset, _clock()).map(self._measure)
        options = tf.data.Options()
        # If TensorFlow prefetched the result, the clocks would not measure the reader's wait.
        options.experimental_optimization.inject_prefetch = False
        self.dataset = timed.with_options(options)

    def _measure(self, before, batch, after):
        with tf.control_dependencies([tf.numpy_function(self._add, [before, after], tf.int64)]):
            return tf.nest.map_structure(tf.identity, batch)

    def _add(self, before, after):
        self._seconds += float(after - before)
        return 0

    def seconds(self):
        """Return how many seconds the reader has waited so far."""
        return self._seconds


def _clock():
    # TensorFlow refuses `tf.timestamp` if operations must be deterministic.
    ticks = tf.data.Dataset.from_tensors(0).repeat()
    return ticks.map(lambda _: tf.numpy_function(time.perf_counter, [], tf.float64))
