"""The range, mean and deviation of the pixels of a dataset."""

import numpy as np
import tensorflow as tf
import tqdm

from keras_vit.core.image_spec import ImageSpec
from keras_vit.data.images import decoding
from keras_vit.data.sources.masks import unpack
from keras_vit.data.sources.source import Source

PERCENTILES = (1, 99)
# Half the width of a range of "deviations", in standard deviations. It has 95 % of normal values.
DEVIATIONS = 2
# How `measure_range` can measure a range of values.
MEASURED_RANGES = ("percentiles", "deviations")
# Greatest number of images that are measured, and of values of each.
_IMAGES, _VALUES = 1000, 10_000


def measure_range(
    source: Source, channels: int = 3, measured: str = "percentiles"
) -> tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure which range the stored values of images have.

    At most 1,000 images at equal distances in the source are read, and at most 10,000 values of
    random pixels of each of them. Images that cannot be decoded are left out. Another call returns
    the same range.

    Args:
        source: a `Source`, as `keras_vit.data.find_source` returns.
        channels: number of channels to which the images are decoded.
        measured: `"percentiles"` for the 1st and 99th percentiles of the values of all channels, or
            `"deviations"` for the mean minus and plus two standard deviations of each channel.

    Returns:
        `(low, high)`, for `keras_vit.core.image_spec.ImageSpec.value_range`: two numbers, or two
        tuples of one number per channel.

    Example:
    >>> keras_vit.data.measure_range(keras_vit.data.find_source("digits", "train"))
    (0.0, 255.0)
    """

    def decode(encoded):
        values, _ = decoding.decode_stored(encoded, ImageSpec(channels=channels))
        is_allowed = tf.reduce_any(tf.shape(values)[2] == decoding.read_channels(channels))
        with tf.control_dependencies([decoding.require(is_allowed, "other channels")]):
            return decoding.cut_and_scale(tf.identity(values), source.border, source.scale)

    values = _sample(source, channels, decode)
    if measured == "percentiles":
        return tuple(np.percentile(values, PERCENTILES).tolist())
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    half = np.where(deviation > 0, DEVIATIONS * deviation, 1)
    return tuple((mean - half).tolist()), tuple((mean + half).tolist())


def measure_statistics(source, image_spec):
    """Measure the mean and the standard deviation of each channel, for pixels in [0, 1].

    Args:
        source: a `Source`, whose images are sampled as by `measure_range`.
        image_spec: an `ImageSpec`, whose channels and range of values are used.

    Returns:
        `(mean, deviation)`, two float64 arrays with one number per channel.
    """

    def decode(encoded):
        return source.pixels(decoding.decode_function(encoded, image_spec))

    pixels = _sample(source, image_spec.channels, decode) / 255
    return pixels.mean(axis=0), pixels.std(axis=0)


def _sample(source, channels, decode):
    """Return pixels of images that can be decoded, a float64 array `(pixels, channels)`."""
    count, generator = source.num_examples, np.random.default_rng(0)
    positions = np.linspace(0, count - 1, min(count, _IMAGES)).astype("int64")

    def read(number, payload, label):
        encoded = source.read(payload)
        return decode(unpack(encoded)[0] if source.has_masks else encoded)

    examples = source.examples_with(source.numbers[positions])
    images = examples.map(read, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    samples = []
    for image in tqdm.tqdm(images.as_numpy_iterator(), "statistics", len(positions)):
        # Gray is repeated for three channels. For one channel, the values of RGB count alike.
        shape = (*image.shape[:2], max(image.shape[2], channels))
        pixels = np.broadcast_to(image, shape).reshape(-1, channels)
        samples.append(
            generator.choice(pixels, min(len(pixels), _VALUES // channels), replace=False)
        )
    return np.concatenate(samples).astype("float64")
