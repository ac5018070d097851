"""Images and their masks, changed together."""

import dataclasses
import io
import re

import numpy as np
import PIL.Image
import tensorflow as tf

from keras_vit.core.choices import IGNORED
from keras_vit.data.images.decoding import decode_function, explain
from keras_vit.data.images.image_maker import ImageMaker
from keras_vit.data.images.preprocessing import Preprocessing
from keras_vit.data.images.scaling import scale_pixels
from keras_vit.data.images.transforms import inception_crop_of, resize
from keras_vit.data.sources.segmentation.folder import unpack

# Modes of Pillow in which a pixel is one number.
_MODES = ("1", "L", "P", "I", "I;16")


@dataclasses.dataclass(frozen=True)
class MaskMaker(ImageMaker):
    """Turn the bytes of images and of their masks into images with a fourth channel, the mask.

    Crop and flip are the same for both. The image is interpolated bilinearly; a pixel of the mask
    has the class of the nearest pixel.

    Args:
        num_classes: number of classes.

    Raises:
        ValueError: as `ImageMaker`, or if the preprocessing has more than `min_crop_area`, `flip`.
    """

    num_classes: int = 0

    def __post_init__(self):
        super().__post_init__()
        area, flip = self.preprocessing.min_crop_area, self.preprocessing.flip
        if self.preprocessing != Preprocessing(min_crop_area=area, flip=flip):
            raise ValueError(
                "Images with masks can have `min_crop_area` and `flip` alone. "
                f"Received: {self.preprocessing}"
            )

    @property
    def shape(self):
        """Shape of an image with its mask."""
        return (*self.image_size, 4)

    def mixing(self):
        """Return the function that takes the masks out of the images of a batch, as labels."""
        return split_masks

    def make(self):
        """Return a function of the bytes of `pack` and a seed: `(*image_size, 4)`, float32."""

        def make_image(encoded, seed):
            both = self.read(encoded, seed)
            first, second = tf.unstack(tf.random.experimental.stateless_split(seed, 2), 2)
            if self.preprocessing.min_crop_area is not None:
                both = inception_crop_of(both, first, self.preprocessing.min_crop_area)
            pixels = scale_pixels(resize(both[..., :3], self.image_size))
            mask = tf.image.resize(both[..., 3:], self.image_size, "nearest")
            image = tf.concat([pixels, tf.cast(mask, tf.float32)], -1)
            return self._flip(image, second) if self.preprocessing.flip else image

        return make_image

    def read(self, encoded, seed):
        """Return an image and its mask as `decode_pair`: all that a broken file fails."""
        return decode_pair(encoded, self.num_classes)


# In eager execution a function in Python would get arrays, which lose zeros at the end of bytes.
@tf.function(autograph=False)
def decode_pair(encoded, num_classes):
    """Return an image and its mask, the result of `pack`, as int32 `(height, width, 4)`.

    Raises `tf.errors.InvalidArgumentError` if one cannot be decoded, or their sizes differ.
    """
    image, mask = unpack(encoded)
    image = tf.cast(decode_function(image), tf.int32)
    mask = tf.numpy_function(
        lambda *arguments: read_mask(*arguments, num_classes), [mask, tf.shape(image)[:2]], tf.int32
    )
    return tf.ensure_shape(tf.concat([image, mask[..., None]], -1), (None, None, 4))


def read_mask(encoded, size, num_classes):
    """Return the classes of the pixels of a mask, int32 `(height, width)`; `IGNORED` for none.

    Raises `ValueError` if the bytes are not an image of this size with one class number per pixel.
    """
    try:
        with PIL.Image.open(io.BytesIO(encoded)) as picture:
            mode, shape = picture.mode, picture.size[::-1]
            # Nothing is decoded that is refused.
            is_right = shape == tuple(size) and mode in _MODES
            mask = np.asarray(picture, "int32") if is_right else None
    # Pillow raises a dozen kinds for damaged files.
    except Exception as error:
        reason = re.sub(r" <.*>", "", str(error))
        raise ValueError(f"a mask must be a PNG file ({reason})") from error
    if shape != tuple(size):
        raise ValueError(
            f"a mask must have the size {tuple(map(int, size))} of its image. Received: {shape}"
        )
    if mode not in _MODES:
        raise ValueError(f"a mask must have one number per pixel. Received: the mode {mode}")
    mask = mask // _gray_step(encoded)
    if wrong := sorted({*np.unique(mask).tolist()} - {*range(num_classes), IGNORED}):
        raise ValueError(
            f"a mask must have numbers below {num_classes}, or {IGNORED}. Received: {wrong}"
        )
    return mask


def _gray_step(encoded):
    """Return by how much Pillow multiplies the numbers of a gray PNG of 2 or 4 bits, else 1."""
    is_gray = encoded[:4] == b"\x89PNG" and encoded[25] == 0
    return 255 // (2 ** encoded[24] - 1) if is_gray and encoded[24] in (2, 4) else 1


def split_masks(images, labels, seed):
    """Return images without their fourth channel, and their masks, int32."""
    return images[..., :3], tf.cast(images[..., 3], tf.int32)


def examples_of(source, skipped=None):
    """Yield the images and the masks of a `Source` at their own sizes.

    Args:
        source: a `Source` with masks.
        skipped: the `Skipped` that records examples that cannot be decoded; they are left out.

    Yields:
        An image, uint8 `(height, width, 3)`, and its mask, int32 `(height, width)`.
    """
    for number, payload, _ in source.examples:
        try:
            both = decode_pair(source.read(payload), len(source.class_names)).numpy()
        except tf.errors.OpError as error:
            if skipped is not None:
                skipped.add(int(number), explain(error))
            continue
        yield both[..., :3].astype("uint8"), both[..., 3]


def count_pixels(source):
    """Count the pixels of each class in the masks of a `Source`.

    Returns:
        `(counts, share)`: an int64 array, and the mean share of a mask's pixels that have a class,
        0 if no mask can be read.
    """
    num_classes = len(source.class_names)
    counts, shares = np.zeros(num_classes, "int64"), []
    for _, mask in examples_of(source):
        known = mask[mask != IGNORED]
        counts += np.bincount(known, minlength=num_classes)
        shares.append(known.size / mask.size)
    return counts, np.mean(shares) if shares else 0.0
