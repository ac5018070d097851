"""The images of a dataset that could not be decoded."""

import contextlib
import logging
import threading
import warnings

import tensorflow as tf

from keras_vit.core.text import name_some

# Number of images that may be skipped, whatever their share.
_ALWAYS_ALLOWED = 10
_SHOWN = 5
# Stands for a label in a list of several.
IN_A_LIST = -2


class Skipped:
    """The images of a dataset that could not be decoded, with reasons. It grows during reading.

    Args:
        source: the `Source`.
        max_share: greatest share of the images that may be skipped.
        reasons: dictionary from ids that are known to be broken to reasons.
    """

    def __init__(self, source, max_share, reasons=()):
        self._source, self._max_share = source, max_share
        self._reasons = dict(reasons)
        self._lock = threading.Lock()
        self.error = None

    @property
    def reasons(self):
        """A dictionary from ids, sorted, to the reason why each image was skipped."""
        with self._lock:
            return dict(sorted(self._reasons.items()))

    def __len__(self):
        return len(self._reasons)

    def __str__(self):
        # A source of features is without the images that had none.
        missing = len(self) - len(self._source.find_numbers(self.reasons))
        total = self._source.num_examples + missing
        shown = name_some([f"{id} ({reason})" for id, reason in self.reasons.items()], _SHOWN)
        return f"{len(self)} of {total} images were skipped: {shown}"

    def add(self, number, reason):
        """Record the number of an example; raise `ValueError` if there are too many."""
        id, count = self._source.find_id(number), self._source.num_examples
        with self._lock:
            is_new = id not in self._reasons
            self._reasons[id] = reason
        if is_new:
            logging.getLogger("keras_vit").info("skipped %s: %s", id, reason)
        if len(self) >= count:
            self._fail(f"No image could be read. Received: {self}")
        if len(self) > max(self._max_share * count, _ALWAYS_ALLOWED):
            self._fail(
                f"At most a share of {self._max_share:g} of the images may be skipped "
                f"(`max_skipped`). Received: {self}"
            )

    def refuse_label(self, number, label):
        """Raise `ValueError` for an image whose label is not the number of a class."""
        count = len(self._source.class_names)
        shown = "a list with another" if label == IN_A_LIST else f"label={label}"
        self._fail(
            f"A label must be from 0 to {count - 1}, for the {count} classes. Received: "
            f"{shown} of {self._source.find_id(int(number))}"
        )

    def check_count(self, count):
        """Raise `ValueError` unless all examples were read."""
        if count != self._source.num_examples:
            self._fail(
                f"All {self._source.num_examples} examples must be read. Received: {count}; "
                "a file is damaged, changed or missing, or `cache` cannot be written"
            )

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
        dataset.info.skipped.error = None
    try:
        with warnings.catch_warnings():
            # Keras warns if there are fewer batches, because images were skipped.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            yield
    except tf.errors.OpError as error:
        for dataset in datasets:
            if dataset.info.skipped.error is not None:
                raise dataset.info.skipped.error from error
        raise
