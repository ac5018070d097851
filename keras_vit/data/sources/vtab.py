"""Labels of the VTAB tasks that TensorFlow Datasets does not have as such.

Each takes the features of one example as tensors and returns its label, an int64 tensor.

Reference:
    google-research/task_adaptation, `data/clevr.py`, `data/dsprites.py` and `data/kitti.py`.
"""

import itertools

import tensorflow as tf

# 3 to 10 objects.
CLEVR_COUNTS = tuple(f"{count} objects" for count in range(3, 11))
CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)
KITTI_DISTANCE_NAMES = ("up to 8 m", "up to 20 m", "beyond 20 m", "no vehicle")

# Where there is no vehicle, one so far away stands for it: 999 metres begin the last class.
_NO_VEHICLE = 1000.0
# Car, van and truck are the first of the types.
_NUM_VEHICLE_TYPES = 3


def clevr_count(features):
    """How many objects there are, less three."""
    return tf.size(features["objects"]["size"], out_type=tf.int64) - 3


def clevr_distance(features):
    """In which range of `CLEVR_DISTANCES` the closest object is."""
    return _find_range(tf.reduce_min(features["objects"]["pixel_coords"][:, 2]), CLEVR_DISTANCES)


def kitti_distance(features):
    """In which range of `KITTI_DISTANCES`, in metres, the closest vehicle is."""
    objects = features["objects"]
    depths = tf.boolean_mask(objects["location"][:, 2], objects["type"] < _NUM_VEHICLE_TYPES)
    return _find_range(tf.reduce_min(tf.concat([depths, [_NO_VEHICLE]], 0)), KITTI_DISTANCES)


def dsprites_location(features):
    """The horizontal position, its 32 values in pairs."""
    return features["label_x_position"] // 2


def dsprites_orientation(features):
    """The orientation, its 40 values in 16 groups of two or three."""
    return features["label_orientation"] * 2 // 5


def names_of_ranges(bounds):
    """Names of the ranges between bounds.

    Example:
    >>> names_of_ranges((0.0, 8.0, 8.5))
    ('0.0 to 8.0', '8.0 to 8.5')
    """
    return tuple(f"{low} to {high}" for low, high in itertools.pairwise(bounds))


def _find_range(value, bounds):
    """The last bound below the value; a value on a bound belongs to the range before it."""
    return tf.reduce_sum(tf.cast(tf.constant(bounds, value.dtype) < value, tf.int64)) - 1
