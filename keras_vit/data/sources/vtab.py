"""Labels of the VTAB tasks that TensorFlow Datasets does not contain directly.

Each function takes the features of one example as tensors and returns its label, an int64 tensor.
They import TensorFlow when they are called, because the table of datasets is printed without it.

Reference:
    google-research/task_adaptation, `data/clevr.py`, `data/dsprites.py` and `data/kitti.py`.
"""

import itertools

# 3 to 10 objects.
CLEVR_COUNTS = tuple(f"{count} objects" for count in range(3, 11))
CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
CLEVR_DISTANCE_NAMES = tuple(
    f"{low} to {high}" for low, high in itertools.pairwise(CLEVR_DISTANCES)
)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)
KITTI_DISTANCE_NAMES = ("up to 8 m", "up to 20 m", "beyond 20 m", "no vehicle")

# Distance in meters for a picture without a vehicle: the last class begins at 999.
_NO_VEHICLE = 1000.0
# Car, van and truck are the first of the types.
_NUM_VEHICLE_TYPES = 3


def clevr_count(features):
    """Return the number of objects less three."""
    import tensorflow as tf

    return tf.size(features["objects"]["size"], out_type=tf.int64) - 3


def clevr_distance(features):
    """Return the range of `CLEVR_DISTANCES` in which the closest object is."""
    import tensorflow as tf

    return _find_range(tf.reduce_min(features["objects"]["pixel_coords"][:, 2]), CLEVR_DISTANCES)


def kitti_distance(features):
    """Return the range of `KITTI_DISTANCES`, in meters, in which the closest vehicle is."""
    import tensorflow as tf

    objects = features["objects"]
    depths = tf.boolean_mask(objects["location"][:, 2], objects["type"] < _NUM_VEHICLE_TYPES)
    return _find_range(tf.reduce_min(tf.concat([depths, [_NO_VEHICLE]], 0)), KITTI_DISTANCES)


def dsprites_location(features):
    """Return the horizontal position, its 32 values in pairs."""
    return features["label_x_position"] // 2


def dsprites_orientation(features):
    """Return the orientation, its 40 values in 16 groups of two or three."""
    return features["label_orientation"] * 2 // 5


def _find_range(value, bounds):
    """Return the index of the last bound below the value."""
    import tensorflow as tf

    return tf.reduce_sum(tf.cast(tf.constant(bounds, value.dtype) < value, tf.int64)) - 1
