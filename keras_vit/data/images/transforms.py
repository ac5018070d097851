"""From pixels to what a model takes: the original's preprocessing, as functions of one image.

Each takes pixels in [0, 255] and works the same eagerly, inside `Dataset.map` and in an exported
graph. What is random takes a seed: an int tensor of shape `(2,)`; the same seed does the same.
"""

import tensorflow as tf

from keras_vit.data.images.decoding import check_size, decode_function, decode_jpeg_part, jpeg_size
from keras_vit.data.images.headers import is_complete_jpeg
from keras_vit.data.images.preprocessing import scale_pixels

# Of the original's training pipeline: `vit_jax/input_pipeline.py`.
CROP_ASPECT_RATIO = (3 / 4, 4 / 3)


def resize(image, size):
    """Resizes without keeping the aspect ratio.

    Args:
        image: tensor `(height, width, 3)`.
        size: `(height, width)` of the result.

    Returns:
        A float32 tensor `(*size, 3)`.

    Reference:
        `vit_jax/input_pipeline.py`: bilinear with half-pixel centres, not antialiased.
    """
    return tf.image.resize(image, size, method="bilinear")


def resize_small(image, smaller_side):
    """Resizes to a size of the smaller side, keeping the aspect ratio.

    Args:
        image: uint8 tensor `(height, width, 3)`.
        smaller_side: pixels of the smaller side of the result.

    Returns:
        A uint8 tensor of rank 3.

    Raises:
        tf.errors.InvalidArgumentError: if the result would be larger than an image may be.

    Reference:
        big_vision's `pp/ops_image.py`: the mean of the area, cut to whole numbers.
    """
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    # A picture of 1 x 20,000 pixels would become one of 256 x 5,120,000.
    size = check_size(tf.cast(tf.round(size * (smaller_side / tf.reduce_min(size))), tf.int32))
    return tf.cast(tf.image.resize(image, size, method="area"), image.dtype)


def central_crop(image, size):
    """The middle of an image.

    Args:
        image: tensor `(height, width, 3)`, at least of that size.
        size: `(height, width)` of the result.

    Returns:
        A tensor `(*size, 3)`.

    Reference:
        big_vision's `pp/ops_image.py`: an odd rest is left at the bottom and on the right.
    """
    top, left = tf.unstack((tf.shape(image)[:2] - size) // 2)
    return tf.image.crop_to_bounding_box(image, top, left, *size)


def random_crop(image, size, seed):
    """A part of that size from anywhere in an image.

    Args:
        image: tensor `(height, width, 3)`, at least of that size.
        size: `(height, width)` of the result.
        seed: as above.

    Returns:
        A tensor `(*size, 3)`.

    Reference:
        big_transfer's `input_pipeline_tf2_or_jax.py`.
    """
    return tf.image.stateless_random_crop(image, (*size, 3), seed)


def random_flip(image, seed):
    """Flips an image left and right, half of the time.

    Args:
        image: tensor `(height, width, 3)`.
        seed: as above.

    Returns:
        A tensor of the same shape.
    """
    return tf.image.stateless_random_flip_left_right(image, seed)


def inception_crop(encoded, seed, min_area=0.05):
    """A part of an image with a random place, area and aspect ratio, as Inception was trained.

    Nothing but the part is decoded where the image is a JPEG.

    Args:
        encoded: scalar string tensor, the bytes of a file.
        seed: as above.
        min_area: smallest part of the area that a crop has; the largest is all of it.

    Returns:
        A uint8 tensor of rank 3.

    Raises:
        tf.errors.InvalidArgumentError: as `decode`.

    Reference:
        `vit_jax/input_pipeline.py`; the ratio of width to height is 3/4 to 4/3.
    """
    part = tf.cond(
        is_complete_jpeg(encoded),
        lambda: decode_jpeg_part(encoded, *_sample_crop(jpeg_size(encoded), seed, min_area)),
        lambda: inception_crop_of(decode_function(encoded), seed, min_area),
    )
    return tf.ensure_shape(part, (None, None, 3))


def inception_crop_of(image, seed, min_area=0.05):
    """The part that `inception_crop` takes, of an image that is decoded.

    Args:
        image: tensor `(height, width, 3)`.
        seed: as above.
        min_area: as in `inception_crop`.

    Returns:
        A tensor of rank 3.
    """
    begin, size = _sample_crop(tf.shape(image)[:2], seed, min_area)
    return tf.slice(image, tf.concat([begin, [0]], 0), tf.concat([size, [3]], 0))


def evaluation_image(image, image_size):
    """The whole image, resized without keeping its aspect ratio, in [-1, 1].

    Args:
        image: tensor `(height, width, 3)`.
        image_size: `(height, width)` of the result.

    Returns:
        A float32 tensor `(*image_size, 3)`.

    Reference:
        `vit_jax/input_pipeline.py`: there is no central crop.
    """
    return scale_pixels(resize(image, image_size))


def hyper_rule_sizes(height, width):
    """The sizes that BiT-HyperRule trains with, by the size of a dataset's images.

    Args:
        height: of the images, in pixels.
        width: of the images, in pixels.

    Returns:
        `(random_crop_from, image_size)` for `load`.

    Reference:
        big_transfer's `bit_hyperrule.py`.

    Example:
    >>> hyper_rule_sizes(32, 32), hyper_rule_sizes(375, 500)
    ((160, 128), (512, 480))
    """
    return (160, 128) if height * width < 96 * 96 else (512, 480)


def _sample_crop(size, seed, min_area):
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([size, [3]], 0),
        bounding_boxes=tf.zeros((0, 0, 4)),
        seed=seed,
        area_range=(min_area, 1.0),
        aspect_ratio_range=CROP_ASPECT_RATIO,
        min_object_covered=0,
        use_image_if_no_bounding_boxes=True,
    )
    return begin[:2], size[:2]
