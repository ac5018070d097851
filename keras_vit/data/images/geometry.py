"""Crop, resize and flip images, as vit_jax, big_vision, BiT, timm or transformers do.

`ImageMaker` turns the bytes of a training image into an input of a model; `evaluation_image`
prepares images for evaluation, prediction and exports. All functions take pixels in [0, 255] and
work the same eagerly and inside `Dataset.map`; functions that do not decode can be exported. The
result of a random function depends only on its seed, an int tensor of shape `(2,)`.
"""

import dataclasses

import tensorflow as tf

from keras_vit.core.arguments import as_pair, is_integer
from keras_vit.core.image_spec import WHOLE_IMAGE
from keras_vit.data.images import augment
from keras_vit.data.images.decoding import (
    check_size,
    cut_and_scale,
    decode_function,
    decode_jpeg_crop,
    is_complete_jpeg,
    jpeg_size,
    read_orientation,
    turn_upright,
)
from keras_vit.data.images.preprocessing import Preprocessing
from keras_vit.data.images.scaling import scale_pixels

# As in `vit_jax/input_pipeline.py`.
CROP_ASPECT_RATIO = (3 / 4, 4 / 3)


@dataclasses.dataclass(frozen=True)
class ImageMaker:
    """Turn the bytes of image files into inputs of a model.

    Args:
        image_size: int or `(height, width)`, in pixels.
        preprocessing: the `Preprocessing`.
        scale: factor for pixel values: 255 for images of zeros and ones.
        border: number of pixels to cut off each side of a decoded image.

    Raises:
        ValueError: if the image size is not positive, or larger than the image before the crop.
    """

    image_size: int | tuple[int, int]
    preprocessing: Preprocessing
    scale: int = 1
    border: int = 0

    def __post_init__(self):
        object.__setattr__(self, "image_size", as_pair(self.image_size, "image_size"))
        for name in ("random_crop_from", "central_crop_from"):
            side = getattr(self.preprocessing, name)
            if side is not None and (not is_integer(side) or side < max(self.image_size)):
                raise ValueError(
                    f"`{name}` must be a whole number, at least the `image_size` "
                    f"{self.image_size}. Received: {name}={side!r}"
                )

    @property
    def shape(self):
        """Shape of an image."""
        return (*self.image_size, self.preprocessing.image_spec.channels)

    def mixing(self):
        """Return a function of images, labels and a seed that mixes a batch; `None` not to mix."""
        augmentation = self.preprocessing.augmentation
        return augment.mixing(augmentation) if augmentation.mixes else None

    def make(self):
        """Return a function of the bytes of a file and a seed, int64 `(2,)`, that returns an image.

        The image is float32 `(*image_size, channels)`, in [-1, 1].
        """
        augmentation = self.preprocessing.augmentation
        operations = [self._flip] if self.preprocessing.flip else []
        if augmentation.layers:
            operations.append(augment.rand_augment(augmentation.layers, augmentation.magnitude))
        if augmentation.erasing:
            operations.append(augment.random_erasing(augmentation.erasing))
        if augmentation.layer is not None:
            operations.append(augment.by_layer(augmentation.layer, self.shape))

        def make_image(encoded, seed):
            num = 1 + len(operations)
            crop_seed, *seeds = tf.unstack(tf.random.experimental.stateless_split(seed, num), num)
            image = tf.cast(self.read(encoded, crop_seed), tf.float32)
            for operation, operation_seed in zip(operations, seeds, strict=True):
                image = operation(image, operation_seed)
            return scale_pixels(image)

        return make_image

    def read(self, encoded, seed):
        """Decode, crop and resize an image. If this succeeds, the file is not broken."""
        settings = self.preprocessing
        is_plain = settings.image_spec.has_rgb_bytes and not settings.upright and not self.border
        if settings.min_crop_area is not None and is_plain:
            crop = inception_crop(encoded, seed, settings.min_crop_area)
            return resize_image(cut_and_scale(crop, 0, self.scale), self.image_size)
        image = decode_function(encoded, settings.image_spec)
        image = cut_and_scale(image, self.border, self.scale)
        if settings.upright:
            image = turn_upright(image, read_orientation(encoded))
        if settings.min_crop_area is not None:
            image = inception_crop_of(image, seed, settings.min_crop_area)
        if settings.random_crop_from is not None:
            square = resize_image(image, 2 * (settings.random_crop_from,))
            return random_crop(square, self.image_size, seed)
        if settings.central_crop_from is not None:
            small = resize_small(image, settings.central_crop_from)
            return central_crop(small, self.image_size)
        return resize_as(image, self.image_size, settings.image_spec)

    def _flip(self, image, seed):
        is_always = self.preprocessing.flip == "always"
        return image[:, ::-1] if is_always else random_flip(image, seed)


def resize_image(image, size):
    """Resize an image to `(height, width)`, without keeping the aspect ratio, in float32.

    Reference:
        `vit_jax/input_pipeline.py`: bilinear with half-pixel centers, not antialiased.
    """
    return tf.image.resize(image, size, method="bilinear")


def resize_small(image, smaller_side):
    """Resize the smaller side of an image to a length, keeping the aspect ratio.

    Raises `tf.errors.InvalidArgumentError` if the result has more than `MAX_PIXELS` pixels.

    Reference:
        `pp/ops_image.py` of big_vision: area interpolation, truncated to integers if
        the image has integers.
    """
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    # Check the size, because an image of 1 x 20,000 pixels would become 256 x 5,120,000.
    size = check_size(tf.cast(tf.round(size * (smaller_side / tf.reduce_min(size))), tf.int32))
    return tf.cast(tf.image.resize(image, size, method="area"), image.dtype)


def central_crop(image, size):
    """Return the central crop of a size `(height, width)`; the image must be at least as large.

    Reference:
        `pp/ops_image.py` of big_vision: an odd remainder is cut off at the bottom and right.
    """
    top, left = tf.unstack((tf.shape(image)[:2] - size) // 2)
    return tf.image.crop_to_bounding_box(image, top, left, *size)


def random_crop(image, size, seed):
    """Return a crop of a size `(height, width)`, at a random position.

    Reference:
        `input_pipeline_tf2_or_jax.py` of big_transfer.
    """
    return tf.image.stateless_random_crop(image, (*size, image.shape[-1]), seed)


def random_flip(image, seed):
    """Flip an image left and right with a probability of one half."""
    return tf.image.stateless_random_flip_left_right(image, seed)


def inception_crop(encoded, seed, min_area=0.05):
    """Return a crop with a random position, area and aspect ratio (Inception crop).

    If the image is a complete JPEG, only the crop is decoded.

    Args:
        encoded: scalar string tensor, the bytes of a file.
        seed: int tensor `(2,)`.
        min_area: smallest area of the crop, as a share of the image's area.

    Returns:
        A uint8 tensor of rank 3.

    Raises:
        tf.errors.InvalidArgumentError: as in `decode`.

    Reference:
        `vit_jax/input_pipeline.py`; the ratio of width to height is 3/4 to 4/3.
    """
    crop = tf.cond(
        is_complete_jpeg(encoded),
        lambda: decode_jpeg_crop(encoded, *_sample_crop(jpeg_size(encoded), seed, min_area)),
        lambda: inception_crop_of(decode_function(encoded), seed, min_area),
    )
    return tf.ensure_shape(crop, (None, None, 3))


def inception_crop_of(image, seed, min_area=0.05):
    """Return the same crop as `inception_crop`, for a decoded image."""
    begin, size = _sample_crop(tf.shape(image)[:2], seed, min_area)
    return tf.slice(image, tf.concat([begin, [0]], 0), tf.concat([size, [-1]], 0))


def evaluation_image(image, image_size, image_spec=WHOLE_IMAGE):
    """Resize and crop an image as in evaluation, and scale its values to [-1, 1].

    Args:
        image: one image, or a batch of images of one size.
        image_size: `(height, width)`, in pixels.
        image_spec: an `ImageSpec`; by default the whole image is resized.
    """
    return scale_pixels(resize_as(image, image_size, image_spec))


def resize_as(image, image_size, image_spec):
    """Resize and crop an image, or a batch of images of one size, by an `ImageSpec`, in float32.

    Reference:
        `vit_jax/input_pipeline.py` for the default; Pillow's `Image.resize` if antialiased.
    """
    if any(image_spec.cut_off):
        uncut = dataclasses.replace(image_spec, cut_off=(0, 0))
        whole = resize_as(image, image_spec.full_size(image_size), uncut)
        return tf.image.crop_to_bounding_box(whole, 0, 0, *image_size)
    before_crop = [image_spec.length_before_crop(length) for length in image_size]
    if image_spec.keeps_aspect_ratio:
        before_crop = check_size(_covering_size(tf.shape(image)[-3:-1], *before_crop))
    method = {"lanczos": "lanczos3"}.get(image_spec.interpolation, image_spec.interpolation)
    if image_spec.antialias:
        resized = _resize_antialiased(image, before_crop, method)
    else:
        resized = tf.image.resize(image, before_crop, method)
    if image_spec.crop_share == 1 and not image_spec.keeps_aspect_ratio:
        return resized
    rest = tf.shape(resized)[-3:-1] - image_size
    half = tf.cast(tf.round(rest / 2), tf.int32) if image_spec.rounds_offset else rest // 2
    top, left = tf.unstack(half)
    return tf.image.crop_to_bounding_box(resized, top, left, *image_size)


def _resize_antialiased(image, size, method):
    """Resize the width, then the height, and round after each step, as Pillow before 13 does.

    Images of floats are not rounded. Pillow 13 begins with the height if this is faster; models
    were trained with older versions.
    """
    height, width = tf.unstack(size)
    rounds = tf.as_dtype(image.dtype).is_integer
    for target in ((tf.shape(image)[-3], width), (height, width)):
        image = tf.image.resize(image, target, method, antialias=True)
        image = tf.clip_by_value(tf.round(image) if rounds else image, 0, 255)
    return image


def _covering_size(size, height, width):
    """Return the smallest size that has the aspect ratio of `size` and covers a height and a width.

    To cover a square, the longer side is rounded down, as in torchvision and transformers. To cover
    a rectangle, it is rounded to the nearest integer, as in timm's `ResizeKeepRatio`.
    """
    sides = tf.cast(size, tf.float64)
    lengths = sides / tf.reduce_min(sides / tf.constant((height, width), tf.float64))
    # A quotient of floats may be slightly below the exact integer.
    rounded = tf.floor(lengths + 1e-6) if height == width else tf.round(lengths)
    return tf.cast(rounded, tf.int32)


def hyper_rule_sizes(height: int, width: int) -> tuple[int, int]:
    """Return the image sizes of BiT-HyperRule for the size of a dataset's images.

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
