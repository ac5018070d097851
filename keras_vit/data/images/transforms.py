"""The preprocessing of the original: functions of one image.

Each takes pixels in [0, 255] and works the same eagerly, inside `Dataset.map` and in an exported
graph. Random functions take a seed, an int tensor of shape `(2,)`, that determines the result.
"""

import tensorflow as tf

from keras_vit.data.images.decoding import check_size, decode_function, decode_jpeg_part, jpeg_size
from keras_vit.data.images.headers import is_complete_jpeg
from keras_vit.data.images.scaling import scale_pixels

# As in `vit_jax/input_pipeline.py`.
CROP_ASPECT_RATIO = (3 / 4, 4 / 3)


def resize(image, size):
    """Resize an image to `(height, width)` without keeping the aspect ratio; returns float32.

    Reference:
        `vit_jax/input_pipeline.py`: bilinear with half-pixel centers, not antialiased.
    """
    return tf.image.resize(image, size, method="bilinear")


def resize_small(image, smaller_side):
    """Resize a uint8 image to a length of its smaller side, keeping the aspect ratio.

    Raises `tf.errors.InvalidArgumentError` if the result has more than `MAX_PIXELS` pixels.

    Reference:
        `pp/ops_image.py` of big_vision: the mean of the area, truncated to integers.
    """
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    # 1 x 20,000 pixels would become 256 x 5,120,000.
    size = check_size(tf.cast(tf.round(size * (smaller_side / tf.reduce_min(size))), tf.int32))
    return tf.cast(tf.image.resize(image, size, method="area"), image.dtype)


def central_crop(image, size):
    """Return the middle of an image that is at least as large as `size`, `(height, width)`.

    Reference:
        `pp/ops_image.py` of big_vision: an odd remainder is cut off at the bottom and right.
    """
    top, left = tf.unstack((tf.shape(image)[:2] - size) // 2)
    return tf.image.crop_to_bounding_box(image, top, left, *size)


def random_crop(image, size, seed):
    """Return a part of an image, of the size `(height, width)`, at a random position.

    Reference:
        `input_pipeline_tf2_or_jax.py` of big_transfer.
    """
    return tf.image.stateless_random_crop(image, (*size, 3), seed)


def random_flip(image, seed):
    """Flip an image left and right with a probability of one half."""
    return tf.image.stateless_random_flip_left_right(image, seed)


def inception_crop(encoded, seed, min_area=0.05):
    """Return a part of an image with a random position, area and aspect ratio (Inception crop).

    Only the part is decoded if the image is a JPEG.

    Args:
        encoded: scalar string tensor, the bytes of a file.
        seed: int tensor `(2,)`.
        min_area: smallest share of the area of the image; the largest is 1.

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
    """Return the part of a decoded image that `inception_crop` takes."""
    begin, size = _sample_crop(tf.shape(image)[:2], seed, min_area)
    return tf.slice(image, tf.concat([begin, [0]], 0), tf.concat([size, [3]], 0))


def evaluation_image(image, image_size):
    """Return the whole image, resized without keeping its aspect ratio, in [-1, 1].

    Reference:
        `vit_jax/input_pipeline.py`: there is no central crop.
    """
    return scale_pixels(resize(image, image_size))


def hyper_rule_sizes(height, width):
    """Return the image sizes of BiT-HyperRule, by the size of the images of a dataset.

    Args:
        height: height of the images, in pixels.
        width: width of the images, in pixels.

    Returns:
        `(random_crop_from, image_size)` for `load`.

    Reference:
        `bit_hyperrule.py` of big_transfer.

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
