"""The sixteen operations of RandAugment on an image, as in AugReg.

Each function takes and returns a uint8 tensor `(height, width, 3)`. Geometric operations copy the
nearest pixel; pixels from outside of the image become `GREY`.

keras-cv's layers Equalization, Posterization and Solarization compute the same as `equalize`,
`posterize` and `solarize`, but on float images, and take 1.7 to 4 times as long. Other layers of
keras-cv with the names of these operations compute something else.

Reference:
    `pp/archive/autoaugment.py` of big_vision.
"""

import math

import numpy as np
import tensorflow as tf

GREY = 128
# Number of values of a byte. Integers outside [0, 255] wrap around, as in big_vision.
_BYTE = 256
_CHANNELS = 3
_BLUR = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], "float32") / 13


def auto_contrast(image):
    """Stretch the values of each channel to [0, 255]."""
    rows = _as_rows(image)
    # Reducing one axis after the other is twice as fast as reducing both at once.
    low = tf.cast(tf.reduce_min(tf.reduce_min(image, 0), 0), tf.float32)
    high = tf.cast(tf.reduce_max(tf.reduce_max(image, 0), 0), tf.float32)
    is_flat = low == high
    scale = tf.where(is_flat, 1.0, 255 / (high - low))
    offset = tf.where(is_flat, 0.0, -low * scale)
    stretched = tf.cast(rows, tf.float32) * _per_row(scale, rows) + _per_row(offset, rows)
    return tf.reshape(tf.saturate_cast(stretched, tf.uint8), tf.shape(image))


def equalize(image):
    """Spread the values of each channel so that all values are about equally frequent."""
    rows = _as_rows(image)
    # One histogram has 256 bins for each channel.
    bins = tf.cast(rows, tf.int32) + _per_row(tf.range(_CHANNELS) * _BYTE, rows)
    bins = tf.reshape(bins, [-1])
    length = _CHANNELS * _BYTE
    counts = tf.math.bincount(bins, minlength=length, maxlength=length)
    below = tf.cumsum(tf.reshape(counts, [_CHANNELS, _BYTE]), axis=1, exclusive=True)
    # The number of pixels below the greatest value of the channel.
    num_below = tf.where(below < tf.size(bins) // _CHANNELS, below, 0)
    step = tf.reduce_max(num_below, axis=1, keepdims=True) // 255
    table = tf.minimum((below + step // 2) // tf.maximum(step, 1), 255)
    table = tf.cast(tf.where(step == 0, tf.range(_BYTE), table), tf.uint8)
    return tf.reshape(tf.gather(tf.reshape(table, [-1]), bins), tf.shape(image))


def invert(image):
    """Return the negative."""
    return 255 - image


def rotate(image, degrees):
    """Rotate about the center, counterclockwise if `degrees` is positive."""
    angle = tf.cast(degrees * (math.pi / 180), tf.float32)
    cos, sin = tf.cos(angle), tf.sin(angle)
    bottom, right = tf.unstack(tf.cast(tf.shape(image)[:2] - 1, tf.float32))
    left_shift = (right - (cos * right - sin * bottom)) / 2
    top_shift = (bottom - (sin * right + cos * bottom)) / 2
    return _transform(image, [cos, -sin, left_shift], [sin, cos, top_shift])


def posterize(image, bits):
    """Keep the upper `bits` of each value.

    TensorFlow shifts bytes by at most 7. For more than 8 bits, big_vision shifts by a negative
    number, which wraps around. So 0 bits and 9 bits have the effect of 1 bit.
    """
    shift = min((8 - bits) % _BYTE, 7)
    return tf.bitwise.bitwise_and(image, 255 >> shift << shift)


def solarize(image, threshold):
    """Invert values of at least `threshold` modulo 256: 384 means 128, and 256 means 0."""
    # `255 - value` is XOR with 255; `tf.where` is four times as slow.
    is_bright = tf.cast(image >= threshold % _BYTE, tf.uint8)
    return tf.bitwise.bitwise_xor(image, is_bright * 255)


def solarize_add(image, addition):
    """Add `addition` to values below 128, up to 255."""
    is_dark = tf.cast(image < 128, tf.uint8)
    return image + is_dark * tf.minimum(255 - image, min(addition, 255))


def color(image, factor):
    """Scale the saturation by `factor`: 0 gives a grey image, and 1 the same image."""
    grey = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))
    return _blend(grey, image, factor)


def contrast(image, factor):
    """Scale the differences from a grey value by `factor`: 0 gives this grey, 1 the same image.

    The grey value is the number of pixels / 256, at most 255: 196 for 224 x 224 pixels. Later
    versions of big_vision take the mean value, but AugReg's models were trained with this value.
    """
    grey = tf.minimum(tf.size(image) // (_CHANNELS * 256), 255)
    return _blend(grey, image, factor)


def brightness(image, factor):
    """Multiply all values by `factor`: 0 gives black, and 1 the same image."""
    return tf.saturate_cast(tf.cast(image, tf.float32) * factor, tf.uint8)


def sharpness(image, factor):
    """Scale the differences from a blurred image by `factor`, except at the border."""
    blurred = tf.saturate_cast(_blur(tf.cast(image, tf.float64)), tf.uint8)
    sharp = _blend(blurred, image[1:-1, 1:-1], factor)
    # If an image has only one row (or column), the last one is empty, so that none is repeated.
    last_row, last_column = image[1:][-1:], image[1:-1, 1:][:, -1:]
    middle = tf.concat([image[1:-1, :1], sharp, last_column], axis=1)
    return tf.concat([image[:1], middle, last_row], axis=0)


def _blur(pixels):
    """Return weighted means of 3 x 3 pixels, with the rounding of fused multiply-add in float32.

    Rounding decides whether multiples of 1/13 become whole numbers. The convolution of big_vision
    uses fused multiply-add only on processors with AVX-512, on which our reference values were
    computed.
    """
    height, width = tf.unstack(tf.maximum(tf.shape(pixels)[:2] - 2, 0))
    total = tf.zeros([height, width, _CHANNELS], tf.float32)
    for row, column in np.ndindex(3, 3):
        window = pixels[row : row + height, column : column + width]
        # Products and sums are exact in float64: only the cast to float32 rounds.
        exact = tf.cast(total, tf.float64) + float(_BLUR[row, column]) * window
        total = tf.cast(exact, tf.float32)
    return total


def shear_x(image, level):
    """Shift each row to the left by `level` times its distance from the top."""
    return _transform(image, [1, level, 0], [0, 1, 0])


def shear_y(image, level):
    """Shift each column up by `level` times its distance from the left."""
    return _transform(image, [1, 0, 0], [level, 1, 0])


def translate_x(image, pixels):
    """Shift to the left by a number of pixels, rounded to an integer."""
    return _shift(image, [0.0, pixels])


def translate_y(image, pixels):
    """Shift up by a number of pixels, rounded to an integer."""
    return _shift(image, [pixels, 0.0])


def cutout(image, pad, center):
    """Fill a square of side `2 * pad` around a pixel, cut off at the border.

    Args:
        image: the image.
        pad: integer; the square has the pixels with `center - pad <= index < center + pad`.
        center: int tensor `(2,)`, row and column.
    """
    top, left = tf.unstack(tf.maximum(center - pad, 0))
    bottom, right = tf.unstack(tf.minimum(center + pad, tf.shape(image)[:2]))
    square = tf.fill([bottom - top, right - left, _CHANNELS], tf.constant(GREY, tf.uint8))
    rows = image[top:bottom]
    rows = tf.concat([rows[:, :left], square, rows[:, right:]], axis=1)
    return tf.concat([image[:top], rows, image[bottom:]], axis=0)


def _blend(start, end, factor):
    """Return `start + factor * (end - start)`, clipped to [0, 255] and truncated."""
    start, end = tf.cast(start, tf.float32), tf.cast(end, tf.float32)
    return tf.saturate_cast(start + factor * (end - start), tf.uint8)


def _transform(image, first, second):
    """Apply an affine transformation: pixel `(x, y)` is copied from the nearest source pixel.

    Args:
        image: the image.
        first: `a, b, c` of the source column `a * x + b * y + c`.
        second: `a, b, c` of the source row `a * x + b * y + c`.
    """
    matrix = tf.stack([tf.cast(value, tf.float32) for value in (*first, *second, 0, 0)])
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=matrix[None],
        output_shape=tf.shape(image)[:2],
        fill_value=GREY,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )[0]


def _shift(image, pixels):
    """Move an image up and to the left. This is eight times as fast as `_transform`."""
    size = tf.shape(image)[:2]
    pixels = tf.cast(tf.floor(tf.stack(pixels) + 0.5), tf.int32)
    pixels = tf.clip_by_value(pixels, -size, size)
    (top, left), (bottom, right) = (
        tf.unstack(edge) for edge in (tf.maximum(pixels, 0), size + tf.minimum(pixels, 0))
    )
    padding = tf.stack([tf.maximum(-pixels, 0), tf.maximum(pixels, 0)], axis=1)
    padding = tf.concat([padding, [[0, 0]]], axis=0)
    return tf.pad(image[top:bottom, left:right], padding, constant_values=GREY)


def _as_rows(image):
    """Reshape to `(height, width * 3)`, because TensorFlow broadcasts faster over long rows."""
    return tf.reshape(image, [tf.shape(image)[0], -1])


def _per_row(values, rows):
    """Repeat the three values of the channels to the length of a row of `_as_rows`."""
    return tf.tile(values, [tf.shape(rows)[1] // _CHANNELS])
