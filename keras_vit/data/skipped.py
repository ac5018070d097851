"""The images of a dataset that could not be decoded."""

import contextlib
import logging
import threading
import warnings

import numpy as np
import tensorflow as tf

from keras_vit.data.fingerprints import name_some
from keras_vit.data.images.decoding import decode, explain
from keras_vit.data.sources.listing import other_format_of

# Number of images that may be skipped, whatever their share.
_ALWAYS_ALLOWED = 10
_SHOWN = 5
# Stands for a label in a list of several.
IN_A_LIST = -2
COUNT_FROM_1 = "(if labels start at 1, put a line `background` first in `labels.txt`)"


class Skipped:
    """Record the images of a dataset that could not be decoded.

    Args:
        source: the `Source`.
        max_share: greatest share of the images that may be skipped.
        numbers: numbers of the examples that are known to be broken.
    """

    def __init__(self, source, max_share, numbers=()):
        self._source, self._max_share = source, max_share
        self._numbers = {number: source.find_id(number) for number in numbers}
        self._formats = {}
        self._lock = threading.Lock()
        self.error = None

    @property
    def ids(self):
        """The sorted ids of the images."""
        with self._lock:
            return sorted(self._numbers.values())

    def __len__(self):
        with self._lock:
            return len(self._numbers)

    def __str__(self):
        shown = name_some([id + self._formats.get(id, "") for id in self.ids], _SHOWN)
        # A source of features is without the images that had none.
        missing = np.setdiff1d([*self._numbers], self._source.numbers)
        total = self._source.num_examples + len(missing)
        return f"{len(self)} of {total} images were skipped: {shown}"

    def reasons(self):
        """Return a dictionary from ids to the reason why each image was skipped."""
        if self._source.has_masks:
            with self._lock:
                numbers = {id: number for number, id in self._numbers.items()}
            return {id: self._mask_reason(numbers[id]) for id in sorted(numbers)}
        if self._source.path_of is None:
            return dict.fromkeys(self.ids, "it cannot be decoded")
        with self._lock:
            paths = {id: self._source.path_of(number) for number, id in self._numbers.items()}
        return {id: _reason(paths[id]) for id in sorted(paths)}

    def add(self, numbers):
        """Record the numbers of skipped examples; raise `ValueError` if there are too many."""
        found = {int(number): self._source.find_id(int(number)) for number in numbers}
        with self._lock:
            new = set(found) - set(self._numbers)
            self._numbers.update(found)
        for number in sorted(new):
            self._log(number, found[number])
        allowed = max(self._max_share * self._source.num_examples, _ALWAYS_ALLOWED)
        if len(self) > allowed or len(self) >= self._source.num_examples:
            self._fail(
                f"{self._rule()}: each must be a complete JPEG, PNG, GIF, BMP or still WebP file"
                f"{', and its mask right' if self._source.has_masks else ''}. "
                f"Received: {self}{self._first_mask_reason()}"
            )

    def _rule(self):
        if len(self) >= self._source.num_examples:
            return "No image could be read"
        return (
            f"At most a share of {self._max_share:g} of the images may be skipped (`max_skipped`)"
        )

    def _first_mask_reason(self):
        if not self._source.has_masks:
            return ""
        with self._lock:
            first = min(self._numbers)
        return f": {self._mask_reason(first)}"

    def _mask_reason(self, number):
        """Return why an image and its mask cannot be used."""
        # That module imports this folder.
        from keras_vit.data.images.masks import decode_pair

        for _, payload, _ in self._source.some(np.array([number])).take(1):
            try:
                encoded = self._source.read(payload)
                tf.function(decode_pair)(encoded, len(self._source.class_names))
            except tf.errors.OpError as error:
                reason = error.message.partition("ValueError: ")[2].partition("\n")[0]
                return reason or "the image cannot be decoded"
        return "it could not be read before, but can be read now"

    def refuse_label(self, number, label):
        """Raise `ValueError` for an image whose label is not the number of a class."""
        count = len(self._source.class_names)
        hints = {-1: " (not exactly one label; `tfrecord-lists:PATTERN` has several)"}
        if self._source.record_files:
            hints[count] = hints[IN_A_LIST] = f" {COUNT_FROM_1}"
        shown = "a list with another" if label == IN_A_LIST else f"label={label}"
        self._fail(
            f"A label must be from 0 to {count - 1}, for the {count} classes. Received: "
            f"{shown} of {self._source.find_id(int(number))}{hints.get(int(label), '')}"
        )

    def check_count(self, count):
        """Raise `ValueError` unless all examples were read."""
        if count != self._source.num_examples:
            self._fail(
                f"All {self._source.num_examples} examples must be read. Received: {count}; "
                "a file is damaged, changed or missing, or `cache` cannot be written"
            )

    def _log(self, number, id):
        path = self._source.path_of and self._source.path_of(number)
        found = path and (other_format_of(path) if tf.io.gfile.exists(path) else "no such file")
        if found:
            self._formats[id] = f" ({found})"
        own = self._mask_reason(number) if self._source.has_masks else "it cannot be decoded"
        reason = found or own
        logging.getLogger("keras_vit").info("skipped %s: %s", id, reason)

    def _fail(self, message):
        self.error = ValueError(message)
        raise self.error


@contextlib.contextmanager
def explaining_errors(*datasets):
    """Raise the error of a dataset of `load` instead of the error of TensorFlow for it.

    Args:
        *datasets: datasets of `load` that the body iterates over.

    Raises:
        ValueError: if too many images were skipped or a label is out of range.
    """
    for dataset in datasets:
        dataset.skipped.error = None
    try:
        with warnings.catch_warnings():
            # Keras warns if there are fewer batches, because images were skipped.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            yield
    except tf.errors.OpError as error:
        for dataset in datasets:
            if dataset.skipped.error is not None:
                raise dataset.skipped.error from error
        raise


def _reason(path):
    encoded = b""
    try:
        encoded = tf.io.read_file(path).numpy()
        decode(encoded)
    except tf.errors.OpError as error:
        return explain(error, encoded)
    return "it could not be read before, but can be read now"
