"""From encoded images to what a model takes, as TensorFlow functions of one image.

Each works the same eagerly, inside `Dataset.map` and in an exported graph.
"""

import tensorflow as tf

from keras_vit.data.preprocessing import preprocess

# Of the original's training pipeline: `vit_jax/input_pipeline.py`.
CROP_ASPECT_RATIO = (3 / 4, 4 / 3)


def decode(encoded):
    """Decodes a JPEG, PNG, GIF (its first frame), BMP or WebP to RGB.

    Args:
        encoded: scalar string tensor, the bytes of a file.

    Returns:
        A uint8 tensor `(height, width, 3)`.
    """
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    return tf.ensure_shape(image, (None, None, 3))


def evaluation_image(image, image_size):
    """The whole image, resized without keeping its aspect ratio, in [-1, 1].

    Args:
        image: tensor `(height, width, 3)` with values in [0, 255].
        image_size: `(height, width)` of the result.

    Returns:
        A float32 tensor `(*image_size, 3)`.

    Reference:
        `vit_jax/input_pipeline.py`: bilinear with half-pixel centres, not antialiased.
    """
    return preprocess(tf.image.resize(image, image_size, method="bilinear"))


def training_image(image, image_size, seed, min_crop_area=0.05, flip=True):
    """A random crop (Inception crop), flipped half of the time, in [-1, 1].

    Args:
        image: tensor `(height, width, 3)` with values in [0, 255].
        image_size: `(height, width)` of the result.
        seed: int tensor of shape `(2,)`; the same seed gives the same crop and flip.
        min_crop_area: smallest part of the area that a crop has; the largest is all of it.
        flip: whether to flip left and right.

    Returns:
        A float32 tensor `(*image_size, 3)`.

    Reference:
        `vit_jax/input_pipeline.py`.
    """
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        bounding_boxes=tf.zeros((0, 0, 4)),
        seed=seed,
        area_range=(min_crop_area, 1.0),
        aspect_ratio_range=CROP_ASPECT_RATIO,
        min_object_covered=0,
        use_image_if_no_bounding_boxes=True,
    )
    crop = tf.ensure_shape(tf.slice(image, begin, size), (None, None, 3))
    if flip:
        crop = tf.image.stateless_random_flip_left_right(crop, seed + 1)
    return evaluation_image(crop, image_size)
