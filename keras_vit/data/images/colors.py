"""Colors of 3 bits per channel, as classes."""

import numpy as np

# Equal parts of the range of a channel, [-1, 1].
LEVELS = 8


def encode_colors(colors):
    """Return the classes of colors.

    Args:
        colors: float tensor `(..., 3)` in [-1, 1].

    Returns:
        An int32 tensor `(...)` with values from 0 to 511: red counts 64, green 8 and blue 1.

    Example:
    >>> encode_colors([[-1.0, -1.0, -1.0], [1.0, -1.0, -0.7]]).numpy()
    array([  0, 449], dtype=int32)
    """
    # Imported here because `decode_colors`, for figures, works without TensorFlow.
    import tensorflow as tf

    levels = tf.cast((tf.convert_to_tensor(colors) + 1) * (LEVELS / 2), tf.int32)
    levels = tf.clip_by_value(levels, 0, LEVELS - 1)
    return tf.reduce_sum(levels * (LEVELS**2, LEVELS, 1), axis=-1)


def decode_colors(classes):
    """Return the colors in the middle of classes.

    Args:
        classes: int array `(...)` with values from 0 to 511.

    Returns:
        A float32 array `(..., 3)` in [-1, 1].

    Example:
    >>> decode_colors([0, 449])
    array([[-0.875, -0.875, -0.875],
           [ 0.875, -0.875, -0.625]], dtype=float32)
    """
    levels = np.stack(np.unravel_index(classes, (LEVELS,) * 3), axis=-1)
    return ((levels + 0.5) * (2 / LEVELS) - 1).astype("float32")
