"""The preprocessing of a dataset, put together from the functions of one image."""

import dataclasses

import tensorflow as tf

from keras_vit.core.arguments import as_pair, is_integer
from keras_vit.data.images import augment
from keras_vit.data.images import transforms as images
from keras_vit.data.images.decoding import (
    cut_border,
    decode_function,
    read_orientation,
    turn_upright,
)
from keras_vit.data.images.preprocessing import Preprocessing
from keras_vit.data.images.scaling import scale_pixels


@dataclasses.dataclass(frozen=True)
class ImageMaker:
    """Turn the bytes of image files into what a model takes.

    Args:
        image_size: int or `(height, width)`, in pixels.
        preprocessing: the `Preprocessing`.
        scale: factor of pixel values, for datasets of zeros and ones.
        border: width of what is cut off on each side of a decoded image, in pixels.

    Raises:
        ValueError: if the image size is not positive or an image is cropped from a smaller one.
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
        return (*self.image_size, 3)

    def mixing(self):
        """Return a function of images, labels and a seed that mixes a batch, `None` for none."""
        augmentation = self.preprocessing.augmentation
        return augment.mixing(augmentation) if augmentation.mixes else None

    def make(self):
        """Return a function of the bytes of a file and a seed, int64 `(2,)`, that returns an image.

        The image is float32 `(*image_size, 3)`, in [-1, 1].
        """
        augmentation = self.preprocessing.augmentation
        operations = [self._flip] if self.preprocessing.flip else []
        if augmentation.layers:
            operations.append(augment.rand_augment(augmentation.layers, augmentation.magnitude))
        if augmentation.erasing:
            operations.append(augment.random_erasing(augmentation.erasing))

        def make_image(encoded, seed):
            num = 1 + len(operations)
            first, *seeds = tf.unstack(tf.random.experimental.stateless_split(seed, num), num)
            image = tf.cast(self.read(encoded, first), tf.float32)
            for operation, own_seed in zip(operations, seeds, strict=True):
                image = operation(image, own_seed)
            return scale_pixels(image)

        return make_image

    def read(self, encoded, seed):
        """Return the crop of an image, resized to `image_size`: all that a broken file fails."""
        settings = self.preprocessing
        is_decoded_in_part = settings.min_crop_area is not None and not settings.upright
        if is_decoded_in_part and not self.border:
            part = images.inception_crop(encoded, seed, settings.min_crop_area)
            return images.resize(self._scaled(part), self.image_size)
        image = cut_border(decode_function(encoded, settings.image_spec.antialias), self.border)
        image = self._scaled(image)
        if settings.upright:
            image = turn_upright(image, read_orientation(encoded))
        if settings.min_crop_area is not None:
            image = images.inception_crop_of(image, seed, settings.min_crop_area)
        if settings.random_crop_from is not None:
            square = images.resize(image, 2 * (settings.random_crop_from,))
            return images.random_crop(square, self.image_size, seed)
        if settings.central_crop_from is not None:
            small = images.resize_small(image, settings.central_crop_from)
            return images.central_crop(small, self.image_size)
        return images.resize_as(image, self.image_size, settings.image_spec)

    def _scaled(self, pixels):
        return pixels if self.scale == 1 else pixels * tf.cast(self.scale, pixels.dtype)

    def _flip(self, image, seed):
        is_always = self.preprocessing.flip == "always"
        return image[:, ::-1] if is_always else images.random_flip(image, seed)
