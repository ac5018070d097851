"""Colours of 3 bits a channel, as classes."""

import numpy as np

# Equal parts of a channel's range, [-1, 1].
LEVELS = 8


def encode_colours(colours):
    """The classes of colours.

    Args:
        colours: float tensor `(..., 3)` in [-1, 1].

    Returns:
        An int32 tensor `(...)` with values from 0 to 511: red counts 64, green 8 and blue 1.

    Example:
    >>> encode_colours([[-1.0, -1.0, -1.0], [1.0, -1.0, -0.7]]).numpy()
    array([  0, 449], dtype=int32)
    """
    # The inverse, for pictures, does without TensorFlow.
    import tensorflow as tf

    levels = tf.cast((tf.convert_to_tensor(colours) + 1) * (LEVELS / 2), tf.int32)
    levels = tf.clip_by_value(levels, 0, LEVELS - 1)
    return tf.reduce_sum(levels * (LEVELS**2, LEVELS, 1), axis=-1)


def decode_colours(classes):
    """The colours in the middle of classes.

    Args:
        classes: int array `(...)` with values from 0 to 511.

    Returns:
        A float32 array `(..., 3)` in [-1, 1].

    Example:
    >>> decode_colours([0, 449])
    array([[-0.875, -0.875, -0.875],
           [ 0.875, -0.875, -0.625]], dtype=float32)
    """
    levels = np.stack(np.unravel_index(classes, (LEVELS,) * 3), axis=-1)
    return ((levels + 0.5) * (2 / LEVELS) - 1).astype("float32")
