"""The preprocessing of a dataset, put together from the functions of one image."""

import dataclasses

import tensorflow as tf

from keras_vit.core.arguments import as_pair, is_integer
from keras_vit.data.images import augment
from keras_vit.data.images import transforms as images
from keras_vit.data.images.augmentations import AUGMENTATIONS, Augmentation
from keras_vit.data.images.decoding import decode_function, read_orientation, turn_upright
from keras_vit.data.images.preprocessing import scale_pixels


@dataclasses.dataclass(frozen=True)
class ImageMaker:
    """Makes what a model takes from the bytes of an image file.

    In this order: crop, resize, flip, RandAugment, Random Erasing, [-1, 1].

    Args:
        image_size: as in `load`, and so are the others.
        scale: what pixels are multiplied with, for datasets of zeros and ones.

    Raises:
        ValueError: if an argument is out of range or two crops are asked for.
    """

    image_size: int | tuple[int, int]
    min_crop_area: float | None = None
    flip: bool | str = False
    augmentation: Augmentation = AUGMENTATIONS["none"]
    random_crop_from: int | None = None
    central_crop_from: int | None = None
    upright: bool = False
    scale: int = 1

    def __post_init__(self):
        object.__setattr__(self, "image_size", as_pair(self.image_size, "image_size"))
        if self.min_crop_area is not None and not 0 < self.min_crop_area <= 1:
            raise ValueError(
                "`min_crop_area` must be greater than 0 and at most 1. "
                f"Received: min_crop_area={self.min_crop_area!r}"
            )
        if self.flip not in (True, False, "always"):
            raise ValueError(
                f"`flip` must be True, False or 'always'. Received: flip={self.flip!r}"
            )
        crops = ("min_crop_area", "random_crop_from", "central_crop_from")
        given = {name: getattr(self, name) for name in crops if getattr(self, name) is not None}
        if len(given) > 1:
            raise ValueError(f"At most one of {', '.join(crops)} can be given. Received: {given}")
        for name in crops[1:]:
            side = getattr(self, name)
            if side is not None and (not is_integer(side) or side < max(self.image_size)):
                raise ValueError(
                    f"`{name}` must be a whole number, at least the `image_size` "
                    f"{self.image_size}. Received: {name}={side!r}"
                )

    def make(self):
        """A function of the bytes of a file and a seed, int64 `(2,)`, that returns an image.

        The image is float32 `(*image_size, 3)`, in [-1, 1].
        """
        operations = [self._flip] if self.flip else []
        if self.augmentation.layers:
            layers, magnitude = self.augmentation.layers, self.augmentation.magnitude
            operations.append(augment.rand_augment(layers, magnitude))
        if self.augmentation.erasing:
            operations.append(augment.random_erasing(self.augmentation.erasing))

        def make_image(encoded, seed):
            seeds = tf.unstack(
                tf.random.experimental.stateless_split(seed, 1 + len(operations)),
                num=1 + len(operations),
            )
            image = tf.cast(self._cut(encoded, seeds[0]), tf.float32)
            for operation, own_seed in zip(operations, seeds[1:], strict=True):
                image = operation(image, own_seed)
            return scale_pixels(image)

        return make_image

    def _cut(self, encoded, seed):
        """The part of the picture that is seen, in its size."""
        if self.min_crop_area is not None and not self.upright:
            part = images.inception_crop(encoded, seed, self.min_crop_area)
            return images.resize(self._scaled(part), self.image_size)
        image = self._scaled(decode_function(encoded))
        if self.upright:
            image = turn_upright(image, read_orientation(encoded))
        if self.min_crop_area is not None:
            image = images.inception_crop_of(image, seed, self.min_crop_area)
        if self.random_crop_from is not None:
            square = images.resize(image, (self.random_crop_from, self.random_crop_from))
            return images.random_crop(square, self.image_size, seed)
        if self.central_crop_from is not None:
            small = images.resize_small(image, self.central_crop_from)
            return images.central_crop(small, self.image_size)
        return images.resize(image, self.image_size)

    def _scaled(self, pixels):
        return pixels if self.scale == 1 else pixels * tf.cast(self.scale, pixels.dtype)

    def _flip(self, image, seed):
        return image[:, ::-1] if self.flip == "always" else images.random_flip(image, seed)
