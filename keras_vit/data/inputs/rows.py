"""Images to predict, as rows that any worker can read a range of."""

import collections
import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vit.core.arguments import as_objects
from keras_vit.data.images.decoding import decode


@dataclasses.dataclass(frozen=True)
class ImageRows:
    """Images to predict, numbered from 0 in an order that does not change.

    Args:
        num_images: their number.
        find_id: function from the number of an image to its id, a string.
        read: function from a first number and the one after the last to a dictionary of columns:
            the images in `path`, `bytes` or `image`, as `Predictor` takes them, and perhaps
            `label`, the name of the class or a list of names.
        digest: function that returns the identity of the images, as `Source.digest`.
        has_labels: whether there is the column `label`.
        has_several_labels: whether it has lists.
        class_names: names of the classes in the order of the dataset, if it has one.
        left_out: number of files that are not images, by reason.
    """

    num_images: int
    find_id: Callable[[int], str]
    read: Callable[[int, int], dict]
    digest: Callable[[], str]
    has_labels: bool = False
    has_several_labels: bool = False
    class_names: tuple[str, ...] | None = None
    left_out: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def columns(self, start, stop):
        """Return the columns of a range of images: `id` and those of `read`."""
        ids = [self.find_id(number) for number in range(start, stop)]
        return {"id": as_objects(ids), **self.read(start, stop)}


def rows_of(source):
    """Return the examples of a `Source` as `ImageRows`, with the names of their labels."""
    several = source.has_several_labels

    def read(start, stop):
        numbers = source.numbers[start:stop]
        examples = source.some(numbers).as_numpy_iterator()
        found = {int(number): (payload, label) for number, payload, label in examples}
        source.check_readable(np.setdiff1d(numbers, [*found]))
        payloads, labels = zip(*(found[number] for number in numbers.tolist()), strict=True)
        return {
            **_image_column(source, numbers, payloads),
            "label": as_objects([_names(source, label) for label in labels]),
        }

    return ImageRows(
        source.num_examples,
        lambda number: source.find_id(int(source.numbers[number])),
        read,
        source.digest,
        has_labels=True,
        has_several_labels=several,
        class_names=source.class_names,
        left_out=source.left_out,
    )


def _image_column(source, numbers, payloads):
    if source.path_of is not None and not source.border:
        return {"path": as_objects([source.path_of(int(number)) for number in numbers])}
    encoded = [tf.convert_to_tensor(source.read(payload)).numpy() for payload in payloads]
    if source.scale == 1 and not source.border:
        return {"bytes": as_objects(encoded)}
    return {"image": as_objects([_pixels(source, one) for one in encoded])}


def _pixels(source, encoded):
    try:
        return source.pixels(decode(encoded)).numpy()
    except tf.errors.OpError:
        # The predictor explains why these bytes cannot be decoded.
        return encoded


def _names(source, label):
    """Return the name of a label, a list of names if there may be several, `None` for no class."""
    names = source.class_names
    if source.has_several_labels:
        return [names[index] for index in np.flatnonzero(label > 0)]
    return names[label] if 0 <= label < len(names) else None
