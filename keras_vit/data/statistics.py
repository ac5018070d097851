"""The range, mean and deviation of the pixels of a dataset."""

import numpy as np
import tensorflow as tf
import tqdm

from keras_vit.core.arguments import check_choice
from keras_vit.core.image_spec import ImageSpec
from keras_vit.data.images import decoding
from keras_vit.data.sources.masks import unpack
from keras_vit.data.sources.source import Source

PERCENTILES = (1, 99)
# A range of "deviations" is the mean minus and plus this many standard deviations: 95 % of values
# that are normally distributed.
DEVIATIONS = 2
# The values of `value_range` that stand for a range to measure.
MEASURED_RANGES = ("percentiles", "deviations")
# Limits of the sample: the number of images, and of values of each image.
_IMAGES, _VALUES = 1000, 10_000


def measure_range(
    source: Source, channels: int = 3, method: str = "percentiles"
) -> tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure the range of the stored values of images.

    At most 1,000 images at equal distances in the source are read, and at most 10,000 values of
    random pixels of each of them. Images that cannot be decoded are left out. The result is
    deterministic.

    Args:
        source: a `Source`, as `keras_vit.data.find_source` returns.
        channels: number of channels to which the images are decoded.
        method: `"percentiles"` for the 1st and 99th percentiles of the values of all channels, or
            `"deviations"` for the mean minus and plus two standard deviations of each channel. A
            constant channel has its value in the middle of a range.

    Returns:
        `(low, high)`, for `keras_vit.core.image_spec.ImageSpec.value_range`: two numbers, or two
        tuples of one number per channel.

    Raises:
        ValueError: if the method is unknown, or no image can be decoded.

    Example:
    >>> keras_vit.data.measure_range(keras_vit.data.find_source("digits", "train"))
    (0.0, 255.0)
    """
    check_choice("method", method, MEASURED_RANGES)
    spec = ImageSpec(channels=channels)
    values = _sample(source, channels, lambda file: decoding.decode_stored(file, spec)[0])
    if method == "percentiles":
        return tuple(np.percentile(values, PERCENTILES).tolist())
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    # Pixels are computed in float32.
    is_constant = deviation <= 1e-6 * abs(mean)
    half = np.where(is_constant, 1 + abs(mean), DEVIATIONS * deviation)
    return tuple((mean - half).tolist()), tuple((mean + half).tolist())


def measure_statistics(source, image_spec):
    """Measure the mean and the standard deviation of each channel, for pixels in [0, 1].

    Args:
        source: a `Source`, whose images are sampled as by `measure_range`.
        image_spec: an `ImageSpec`, whose channels and range of values are used.

    Returns:
        `(mean, deviation)`, two float64 arrays with one number per channel.
    """
    decode = decoding.decode_function
    pixels = _sample(source, image_spec.channels, lambda file: decode(file, image_spec)) / 255
    return pixels.mean(axis=0), pixels.std(axis=0)


def _sample(source, channels, decode):
    """Return random pixels of a sample of the images, a float64 array `(pixels, channels)`.

    Images that cannot be decoded, or have other channels, are left out.
    """
    count, generator = source.num_examples, np.random.default_rng(0)
    positions = np.linspace(0, count - 1, min(count, _IMAGES)).astype("int64")

    def read(number, payload, label):
        encoded = source.read(payload)
        return source.pixels(decode(unpack(encoded)[0] if source.has_masks else encoded))

    def is_allowed(image):
        return tf.reduce_any(tf.shape(image)[2] == decoding.allowed_channels(channels))

    examples = source.examples_with(source.numbers[positions])
    images = (
        examples.map(read, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors().filter(is_allowed)
    )
    samples = []
    for image in tqdm.tqdm(images.as_numpy_iterator(), "sampled images", len(positions)):
        # Gray becomes three equal channels. For one channel, all values of RGB count alike.
        shape = (*image.shape[:2], max(image.shape[2], channels))
        pixels = np.broadcast_to(image, shape).reshape(-1, channels)
        samples.append(
            generator.choice(pixels, min(len(pixels), _VALUES // channels), replace=False)
        )
    return np.concatenate(samples).astype("float64")
