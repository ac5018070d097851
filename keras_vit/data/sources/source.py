"""`Source`: the examples of one split of a dataset, with ids and labels, before decoding."""

import collections
import dataclasses
import functools
import hashlib
import logging
import pathlib
import unicodedata
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vit.core.text import name_some
from keras_vit.data.digest import data_digest
from keras_vit.data.images.decoding import cut_and_scale
from keras_vit.data.sources.splits import split_ranges

# Number of encoded images in the shuffle buffer, as in `vit_jax/configs/common.py`.
SHUFFLE_BUFFER = 50_000
# Constants of splitmix64, a hash of 64-bit integers by Sebastiano Vigna.
_STEP, _FACTORS, _SHIFTS = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), (30, 27)
_LAST_SHIFT = 31
# Separator of the paths in a payload; no path contains this character.
SEPARATOR = "\0"
# Number of examples to read at once.
_BATCH_SIZE = 1024


@dataclasses.dataclass(frozen=True)
class Source:
    """The examples of one split, or one worker's share of the split.

    An example has a number, which is its position in the whole dataset, and an id, a readable name.

    Args:
        examples: dataset of `(number, payload, label)`, always in the same order: int64, string,
            and int32. In a multi-label dataset, or if the labels are values, a label is a float32
            vector `(classes,)`.
        class_names: name of each label.
        numbers: int64 array of the numbers of the examples.
        find_id: function from the number of an example to its id.
        read: function from a payload to the bytes of the image, both string tensors. By default,
            payloads are the bytes of images.
        shuffle_buffer: number of payloads in the shuffle buffer.
        scale: factor for pixel values: 255 for images of zeros and ones.
        border: number of pixels to cut off each side of decoded images.
        path_of: function from the number of an example to its file, if payloads are paths; `None`
            otherwise.
        left_out: number of files that are not examples, by reason.
        has_no_splits: whether the user has not divided the images into splits: a folder directly
            contains classes, or a pattern of TFRecord files has no `{split}`.
        samples_by_id: whether `subset` chooses examples by their ids, because their numbers change
            when files are added.
        read_range: function from a first and a last number to a dataset like `examples` with at
            least the examples in this range; `None` if only all examples can be read.
        read_numbers: function from numbers to a dataset like `examples` with exactly these
            examples; `None` if payloads are not in memory.
        has_masks: whether the bytes of an example contain an image and its mask.
        has_values: whether labels are values to predict, whose names are `class_names`.
        record_files: paths of the record files that contain the examples.
        version: name and version of a dataset of TensorFlow Datasets.
        all_labels: array of the labels of all numbers of the whole dataset, if they are in memory
            and `record_files` contain the images.
    """

    examples: tf.data.Dataset
    class_names: tuple[str, ...]
    numbers: np.ndarray
    find_id: Callable[[int], str]
    read: Callable = tf.identity
    shuffle_buffer: int = SHUFFLE_BUFFER
    scale: int = 1
    border: int = 0
    path_of: Callable[[int], str] | None = None
    left_out: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    has_no_splits: bool = False
    samples_by_id: bool = False
    read_range: Callable[[int, int], tf.data.Dataset] | None = None
    read_numbers: Callable[[np.ndarray], tf.data.Dataset] | None = None
    has_masks: bool = False
    has_values: bool = False
    record_files: tuple[str, ...] = ()
    version: str | None = None
    all_labels: np.ndarray | None = None

    @property
    def is_multi_label(self):
        """Whether an image may have several labels."""
        return self.examples.element_spec[2].shape.rank == 1 and not self.has_values

    @property
    def num_examples(self):
        """The number of examples."""
        return len(self.numbers)

    def digest(self):
        """Return the digest of the examples: see `keras_vit.data.digest.data_digest`."""
        attributes = (self.class_names, self.is_multi_label, self.scale, self.border, self.version)
        return data_digest(attributes, self._identities(), self.num_examples, self.record_files)

    def _identities(self):
        """Yield the id of each example, with its label and contents if it is not in a record."""
        if self.record_files or self.version:
            for number in self.numbers.tolist():
                labels = () if self.all_labels is None else (self.all_labels[number].tobytes(),)
                yield (self.find_id(number), *labels)
            return
        for columns in self.examples.batch(_BATCH_SIZE).as_numpy_iterator():
            for number, payload, label in zip(*columns, strict=True):
                paths = payload.decode().split(SEPARATOR) if self.path_of is not None else ()
                contents = map(pathlib.Path, paths) if paths else [payload]
                yield (self.find_id(int(number)), label.tobytes(), *contents)

    def labels(self):
        """Return the labels of all examples that can be read, as an array."""
        if self.all_labels is not None:
            return self.all_labels[self.numbers]
        labels = self.examples.map(lambda number, payload, label: label).ignore_errors()
        return np.concatenate([*labels.batch(_BATCH_SIZE).as_numpy_iterator()])

    def encoded(self):
        """Return the examples with their encoded images instead of the payloads."""
        return self.examples.map(
            lambda number, payload, label: (number, self.read(payload), label),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    def with_examples(self, examples, **changes):
        """Return a `Source` with other `examples`, whose payloads are the bytes of images."""
        return dataclasses.replace(
            self,
            examples=examples,
            read=tf.identity,
            path_of=None,
            read_range=None,
            read_numbers=None,
            **changes,
        )

    def pixels(self, image):
        """Cut off the border of a decoded image, and scale its values if they are integers."""
        return cut_and_scale(image, self.border, self.scale)

    def examples_with(self, numbers):
        """Return a dataset like `examples` of the examples with these numbers, in any order."""
        if self.read_numbers is not None:
            return self.read_numbers(numbers)
        if self.read_range is None:
            examples = self.examples
        else:
            # If splits are joined, numbers are only sorted within each split.
            runs = np.split(numbers, np.flatnonzero(np.diff(numbers) < 0) + 1)
            ranges = (self.read_range(run[0], run[-1]) for run in runs)
            examples = functools.reduce(tf.data.Dataset.concatenate, ranges)
        return examples.filter(lambda number, *_: ~not_among(numbers, number))

    def check_readable(self, numbers):
        """Raise `ValueError` if examples cannot be read, such as those after a damaged record."""
        # Payloads in memory can always be read.
        if self.read_numbers is not None or not len(numbers):
            return
        found = [number for number, *_ in self.examples_with(numbers).as_numpy_iterator()]
        if len(lost := np.setdiff1d(numbers, found)):
            raise ValueError(
                "All examples must be read, but a file is damaged. "
                f"Received: {name_some([*map(self.find_id, lost.tolist())])}, which cannot be read"
            )

    def find_numbers(self, ids):
        """Return the numbers of the examples with these ids; unknown ids are ignored."""
        wanted = set(ids)
        if not wanted:
            return []
        return [number for number in self.numbers.tolist() if self.find_id(number) in wanted]

    def without(self, numbers):
        """Return a `Source` without the examples with these numbers, in the same order."""
        if len(numbers) == 0:
            return self
        remaining = self.numbers[~np.isin(self.numbers, numbers)]
        if self.read_numbers is not None:
            examples = self.read_numbers(remaining)
        else:
            examples = self.examples.filter(lambda number, *_: not_among(numbers, number))
        return dataclasses.replace(self, examples=examples, numbers=remaining)

    def balanced(self):
        """Return a `Source` that repeats examples, so that classes have about equal sizes.

        The size of the largest class, divided by the size of an example's class and rounded, is the
        number of times that the example comes.
        """
        if self.is_multi_label or self.has_values:
            raise ValueError(
                "Classes can be balanced if each image has one label. "
                f"Received: {'values' if self.has_values else 'a multi-label set'}"
            )
        pairs = self.examples.map(lambda number, _, label: (number, label)).as_numpy_iterator()
        labels = {int(number): int(label) for number, label in pairs}
        # An example that cannot be read, or has an invalid label, comes once: `Dataset` reports it.
        counts = np.bincount([label for label in labels.values() if label >= 0])
        times = np.round(counts.max() / np.maximum(counts, 1)).astype("int64")
        repetitions = {n: times[label] for n, label in labels.items() if label >= 0}

        def repeat(number, payload, label):
            example = tf.data.Dataset.from_tensors((number, payload, label))
            once = tf.constant(1, tf.int64)
            return example.repeat(tf.where(label < 0, once, tf.gather(times, tf.maximum(label, 0))))

        numbers = np.repeat(self.numbers, [repetitions.get(n, 1) for n in self.numbers.tolist()])
        holds_all = self.shuffle_buffer >= self.num_examples
        return dataclasses.replace(
            self,
            examples=self.examples.flat_map(repeat),
            numbers=numbers,
            shuffle_buffer=len(numbers) if holds_all else self.shuffle_buffer,
            read_range=None,
            read_numbers=None,
        )

    def subset(self, fraction):
        """Return a `Source` with about a fraction of the examples, in the same order.

        Args:
            fraction: up to 1. A larger fraction includes the examples of a smaller fraction.

        Returns:
            A `Source`.
        """
        if fraction == 1:
            return self
        limit = int(fraction * 2**64)
        if self.samples_by_id:
            ids = (self.find_id(number) for number in self.numbers.tolist())
            keys = np.fromiter(map(_hash_id, ids), "uint64", len(self.numbers))
        else:
            keys = _hash_numbers(self.numbers)
        return self.without(self.numbers[keys >= np.uint64(limit)])


def _hash_id(id):
    # File systems store accented letters in different Unicode forms.
    name = unicodedata.normalize("NFC", id).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest())


def _hash_numbers(numbers):
    """Return a 64-bit hash of each number."""
    # Add 1, because the hash of 0 would be 0.
    numbers = (numbers.astype("uint64") + np.uint64(1)) * np.uint64(_STEP)
    for bits, factor in zip(_SHIFTS, _FACTORS, strict=True):
        numbers = (numbers ^ numbers >> np.uint64(bits)) * np.uint64(factor)
    return numbers ^ numbers >> np.uint64(_LAST_SHIFT)


@functools.cache
def log_once(level, text):
    """Log a line only once per process, although the same dataset may be found several times."""
    logging.getLogger("keras_vit").log(level, "%s", text)


def numbered_ids(names, starts):
    """Return a function from the number of an example to its id, `FILE#POSITION`.

    Args:
        names: names of the files (or splits) that contain the examples.
        starts: number of the first example of each file, ascending.
    """

    def find_id(number):
        file = int(np.searchsorted(starts, number, side="right")) - 1
        return f"{names[file]}#{number - starts[file]}"

    return find_id


def multi_hot(labels, num_classes):
    """Return a multi-hot vector, float32 `(num_classes,)`; NaN for all if a label is invalid."""
    is_wrong = tf.reduce_any((labels < 0) | (labels >= num_classes))
    hot = tf.reduce_sum(tf.one_hot(labels, num_classes), axis=0)
    return tf.where(is_wrong, np.nan, tf.minimum(hot, 1))


def not_among(numbers, number):
    """Whether a number, an int64 tensor, is not in a (non-empty) list of numbers."""
    ordered = tf.constant(np.sort(numbers), tf.int64)
    index = tf.searchsorted(ordered, number[None])[0]
    return ordered[tf.minimum(index, len(numbers) - 1)] != number


def from_arrays(payloads, labels, class_names, find_id, indices=slice(None), **options):
    """Return a `Source` of examples whose payloads are in memory.

    Args:
        payloads: array of strings, one per example of the whole dataset.
        labels: int array with the label of each payload, or float array `(payloads, classes)`.
        class_names: name of each label.
        find_id: as in `Source`.
        indices: slice or array of the examples to take.
        **options: as in `Source`.

    Returns:
        A `Source` whose shuffle buffer has room for all examples.
    """
    numbers = np.arange(len(payloads), dtype="int64")[indices]
    labels = np.asarray(labels, "int32" if np.ndim(labels) == 1 else "float32")
    arrays = (numbers, np.asarray(payloads)[numbers], labels[numbers])

    def read_numbers(wanted):
        is_wanted = np.isin(numbers, wanted)
        return tf.data.Dataset.from_tensor_slices(tuple(array[is_wanted] for array in arrays))

    return Source(
        tf.data.Dataset.from_tensor_slices(arrays),
        tuple(class_names),
        numbers,
        find_id,
        shuffle_buffer=max(len(numbers), 1),
        read_numbers=read_numbers,
        **options,
    )


def select_classes(labels, class_names, classes):
    """Find the examples of some classes, and number these classes from 0.

    Args:
        labels: int array.
        class_names: name of each label.
        classes: names of the classes to keep.

    Returns:
        `(keep, labels, class_names)`: a boolean array, the new labels (meaningless for examples
        that are not kept), and the names of the kept classes in the dataset's order.

    Raises:
        ValueError: if `classes` is not a list of names, or a class is unknown.
    """
    names = [] if isinstance(classes, str) or not np.iterable(classes) else list(classes)
    if not names or any(name not in class_names for name in names):
        raise ValueError(
            f"`classes` must be a list of names among {', '.join(class_names)}. "
            f"Received: classes={classes!r}"
        )
    kept = np.array(sorted(class_names.index(name) for name in names))
    return np.isin(labels, kept), np.searchsorted(kept, labels), [class_names[i] for i in kept]


def stratified_subset(labels, start, stop, seed=0):
    """Return sorted indices of a part of each class: from the fraction `start` up to `stop`.

    With the same seed, parts that do not overlap have no common examples.
    """
    chosen = [np.array([], "int64")]
    for label in np.unique(labels):
        members = np.random.default_rng(seed).permutation(np.flatnonzero(labels == label))
        first, last = round(start * len(members)), round(stop * len(members))
        chosen.append(members[first:last])
    return np.sort(np.concatenate(chosen))


def digits(split, classes=None, shard=(0, 1)):
    """Return scikit-learn's 1,797 handwritten digits of 8 x 8 pixels as a `Source`.

    Ids are `digits#INDEX`, with the index in scikit-learn's array. Arguments are as in
    `find_source`.

    Reference:
        Optical Recognition of Handwritten Digits, UCI machine learning repository.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    ranges = split_ranges(split, present=["train"])
    chosen = np.sort(np.concatenate([stratified_subset(data.target, *ends) for _, *ends in ranges]))
    labels, names = data.target, [str(digit) for digit in range(10)]
    if classes is not None:
        keep, labels, names = select_classes(labels, names, classes)
        chosen = chosen[keep[chosen]]
    chosen = chosen[shard[0] :: shard[1]]
    return from_arrays(_encoded_digits(), labels, names, "digits#{}".format, chosen)


@functools.cache
def _encoded_digits():
    from sklearn.datasets import load_digits

    # Scale values from [0, 16] to [0, 255].
    pixels = np.round(load_digits().images * (255 / 16)).astype("uint8")
    return np.array([tf.io.encode_png(image[..., None]).numpy() for image in pixels], object)
