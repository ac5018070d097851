"""Images left out of a dataset: because they cannot be decoded, or because they are excluded."""

import contextlib
import logging
import pathlib
import threading
import warnings

import tensorflow as tf

from keras_vit.core.text import name_some

# Number of images that may be skipped even if `max_skipped` is a smaller share.
_ALWAYS_ALLOWED = 10
_SHOWN = 5
# Used in place of the label if a list of labels contains an invalid one of unknown value.
INVALID_IN_LIST = -2


class Skipped:
    """Record the images of a dataset that could not be decoded, with reasons.

    Args:
        source: the `Source`.
        max_share: greatest share of the images that may be skipped.
        reasons: dictionary `{id: reason}` of the images that are known to be broken.
    """

    def __init__(self, source, max_share, reasons=()):
        self._source, self._max_share = source, max_share
        self._reasons = dict(reasons)
        self._lock = threading.Lock()
        self.error = None

    @property
    def reasons(self):
        """A dictionary from sorted ids to the reason why each image was skipped."""
        with self._lock:
            return dict(sorted(self._reasons.items()))

    def __len__(self):
        return len(self._reasons)

    def __str__(self):
        # A source of features does not contain the images that were skipped, so they are added to
        # the total.
        missing = len(self) - len(self._source.find_numbers(self.reasons))
        total = self._source.num_examples + missing
        shown = name_some([f"{id} ({reason})" for id, reason in self.reasons.items()], _SHOWN)
        return f"{len(self)} of {total} images were skipped: {shown}"

    def add(self, number, reason):
        """Record a skipped example by its number; raise `ValueError` if too many are skipped."""
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
        """Raise `ValueError` for an image with a label that is not the number of a class."""
        count = len(self._source.class_names)
        shown = "a list with another label" if label == INVALID_IN_LIST else f"label={label}"
        self._fail(
            f"A label must be from 0 to {count - 1}, for the {count} classes. Received: "
            f"{shown} for {self._source.find_id(int(number))}"
        )

    def end_of_epoch(self, count):
        """Raise `ValueError` unless all examples were read in an epoch.

        `count` is the number of examples that were read.
        """
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
    """Raise the `ValueError` that stopped a dataset of `load`, instead of TensorFlow's error.

    Args:
        *datasets: datasets from `load` that are read in the `with` block.

    Raises:
        ValueError: if too many images were skipped or a label is out of range.
    """
    for dataset in datasets:
        dataset.info.skipped.error = None
    try:
        with warnings.catch_warnings():
            # Keras warns if skipped images leave fewer batches than expected.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            yield
    except tf.errors.OpError as error:
        for dataset in datasets:
            if dataset.info.skipped.error is not None:
                raise dataset.info.skipped.error from error
        raise


def leave_out(source, ids, name, split, find_all_splits):
    """Leave out examples by their ids, and log their number.

    Args:
        source: a `Source`.
        ids: list of ids, or the path of a file with ids.
        name: name of the dataset, for the log.
        split: name of the split, for the log.
        find_all_splits: function that returns a `Source` of all splits of the dataset.

    Returns:
        A `Source`.

    Raises:
        ValueError: if the file is not UTF-8.
    """
    if isinstance(ids, (str, pathlib.Path)):
        ids = read_ids(ids)
    elif ids is None or not len(ids := list(ids)):
        return source
    excluded = source.find_numbers(ids)
    found = {source.find_id(number) for number in excluded}
    # A line that starts with `# ` is a comment, unless it is the id of an example.
    ids = found | {id for id in ids if not f"{id} ".startswith("# ")}
    unknown = ids - found
    if unknown:
        every = find_all_splits()
        unknown -= {every.find_id(number) for number in every.find_numbers(unknown)}
    logger = logging.getLogger("keras_vit")
    logger.info("%d of %d ids to exclude are in the split %s", len(found), len(ids), split)
    if unknown:
        text = "%d of the %d ids to exclude belong to no image of %s: %s"
        logger.warning(text, len(unknown), len(ids), name, name_some(sorted(map(repr, unknown))))
    return source.without(excluded)


def read_ids(path):
    """Return the lines of a file with one id per line, comments (`# ...`) included.

    Spaces around a line, a byte order mark and empty lines are dropped.
    """
    lines = pathlib.Path(path).expanduser().read_text(encoding="utf-8-sig").splitlines()
    return [line.strip() for line in lines if line.strip()]
