"""The range, mean and deviation of the pixels of a dataset."""

import numpy as np
import tensorflow as tf
import tqdm

from keras_vit.data.images import decoding
from keras_vit.data.sources.masks import unpack
from keras_vit.data.sources.source import Source

PERCENTILES = (1, 99)
# Greatest numbers of images that are measured.
_FOR_RANGE, _FOR_STATISTICS = 1000, 10_000
# Greatest number of values of an image that count for the range.
_VALUES = 10_000


def measure_range(source: Source, channels: int = 3) -> tuple[float, float]:
    """Measure the 1st and 99th percentiles of the stored values of images.

    At most 1,000 images at equal distances in the source are read, and at most 10,000 values at
    equal distances of each of them. Images that cannot be decoded are left out.

    Args:
        source: a `Source`, as `keras_vit.data.find_source` returns.
        channels: number of channels to which the images are decoded.

    Returns:
        `(low, high)`, for `keras_vit.core.image_spec.ImageSpec.value_range`.

    Example:
    >>> keras_vit.data.measure_range(keras_vit.data.find_source("digits", "train"))
    (0.0, 255.0)
    """

    def decode(encoded):
        values, _ = decoding.decode_stored(encoded, channels)
        return decoding.cut_and_scale(values, source.border, source.scale)

    images = _decoded(source, _FOR_RANGE, decode)
    allowed = decoding.read_channels(channels)
    images = images.filter(lambda image: tf.reduce_any(tf.shape(image)[2] == allowed))
    flat = map(np.ravel, images.as_numpy_iterator())
    values = [image[:: -(-image.size // _VALUES)].astype("float64") for image in flat]
    return tuple(np.percentile(np.concatenate(values), PERCENTILES).tolist())


def measure_statistics(source, image_spec):
    """Measure the mean and the standard deviation of each channel, for pixels in [0, 1].

    At most 10,000 images at equal distances in the source are read, without resizing them, and
    images that cannot be decoded are left out.

    Args:
        source: a `Source`.
        image_spec: an `ImageSpec`, whose channels and range of values are used.

    Returns:
        `(mean, deviation)`, two float64 arrays with one number per channel.
    """

    def decode(encoded):
        return (
            tf.cast(source.pixels(decoding.decode_as_function(encoded, image_spec)), "float64")
            / 255
        )

    count, total, squares = 0, 0.0, 0.0
    images = _decoded(source, _FOR_STATISTICS, decode)
    sampled = min(source.num_examples, _FOR_STATISTICS)
    for image in tqdm.tqdm(images.as_numpy_iterator(), "statistics", sampled):
        count += image.shape[0] * image.shape[1]
        total, squares = total + image.sum((0, 1)), squares + (image**2).sum((0, 1))
    mean = total / count
    return mean, np.sqrt(np.maximum(squares / count - mean**2, 0))


def _decoded(source, most, decode):
    """Return a dataset of decoded images of at most `most` examples, without broken images."""
    count = source.num_examples
    positions = np.linspace(0, count - 1, min(count, most)).astype("int64")

    def read(number, payload, label):
        encoded = source.read(payload)
        return decode(unpack(encoded)[0] if source.has_masks else encoded)

    examples = source.examples_with(source.numbers[positions])
    return examples.map(read, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
