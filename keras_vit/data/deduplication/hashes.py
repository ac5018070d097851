"""Perceptual hashes of the images of a dataset."""

import dataclasses

import imagehash
import numpy as np
import tensorflow as tf
import tqdm
from PIL import Image

from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.base import Source

# The lowest 12 x 12 frequencies. With 8 x 8, skies and blurred pictures are alike; with 16 x 16, a
# crop changes more bits than an index can search for.
HASH_SIZE = 12
# Number of 16-bit words of a hash; the tables of the index have an entry per word.
WORDS = HASH_SIZE**2 // 16
_SIDE = 128
# Crops of a test image, in 128ths of its sides: left, top, right, bottom. Any crop of up to 5 % per
# side is near one of them. Each is hashed mirrored, too.
_CROPS = (
    *((0, 0, 0, 0), (2, 2, 2, 2), (5, 5, 5, 5), (2, 5, 2, 5), (5, 2, 5, 2)),
    *((1, 1, 5, 5), (1, 5, 5, 1), (5, 1, 1, 5), (5, 5, 1, 1)),
    *((5, 3, 1, 3), (1, 3, 5, 3), (3, 1, 3, 5), (3, 5, 3, 1)),
)
# Sides of the thumbnail of a test image, and of the thumbnail of a view of it.
_COLORS_SIDE, _VIEW_SIDE = 16, 8
# Standard deviation in grey levels of 255, below which an image counts as blank.
_MIN_CONTRAST = 4


@dataclasses.dataclass(frozen=True)
class Hashes:
    """The hashes of the images of a source.

    Args:
        source: the `Source`.
        numbers: int64 array `(images,)`, the numbers of the examples that have a hash.
        words: uint16 array `(images, views, WORDS)`.
        colors: uint8 array of thumbnails, `(images, 16, 16, 3)` if all views were hashed,
            otherwise `(images, 8, 8, 3)`.
        skipped: ids of the images that could not be decoded.
        blank: ids of the images of (almost) one color.
    """

    source: Source
    numbers: np.ndarray
    words: np.ndarray
    colors: np.ndarray
    skipped: tuple[str, ...]
    blank: tuple[str, ...]


def hash_images(source, all_views=False, name="images"):
    """Hash every image of a source, and keep a tiny thumbnail of it.

    Blank images have no hash, which would be noise. An image that cannot be decoded is skipped.

    Args:
        source: the `Source`.
        all_views: whether to hash crops and mirror images, too: 26 hashes per image, not one.
        name: name of the images in the progress bar.

    Returns:
        `Hashes`.

    Raises:
        ValueError: if no image can be decoded.

    Reference:
        `imagehash.phash`: which of the lowest frequencies of the cosine transform of the grey
        image are above their median.
    """
    seen, blank, numbers, words, colors = set(), [], [], [], []
    thumbnails = _thumbnails(source).as_numpy_iterator()
    progress = tqdm.tqdm(thumbnails, name, source.num_examples, unit=" images")
    for number, pixels, thumbnail in progress:
        seen.add(number)
        if pixels.std() < _MIN_CONTRAST:
            blank.append(source.find_id(int(number)))
            continue
        numbers.append(number)
        views = _views(pixels) if all_views else [pixels]
        words.append(np.stack([hash_pixels(view) for view in views]))
        colors.append(thumbnail if all_views else view_colors(thumbnail, 0))
    if not seen:
        raise ValueError(
            "An image of a dataset must be a complete JPEG, PNG, GIF, BMP or still WebP file. "
            f"Received: {source.num_examples} images ({name}), none of which can be decoded"
        )
    skipped = [source.find_id(number) for number in source.numbers.tolist() if number not in seen]
    side, views = (_COLORS_SIDE, 2 * len(_CROPS)) if all_views else (_VIEW_SIDE, 1)
    words = np.array(words, "uint16").reshape(len(words), views, WORDS)
    colors = np.array(colors, "uint8").reshape(len(words), side, side, 3)
    numbers = np.array(numbers, "int64")
    return Hashes(source, numbers, words, colors, tuple(skipped), tuple(blank))


def hash_pixels(pixels):
    """Return the hash of a grey image, uint8 `(height, width)`, as a uint16 array `(WORDS,)`."""
    bits = imagehash.phash(Image.fromarray(pixels), HASH_SIZE).hash
    # Each word has bits of low and high frequencies, so that few images have the same word.
    return np.packbits(bits.reshape(-1, WORDS).T).view("uint16")


def view_colors(colors, view):
    """Return the thumbnail of a view, uint8 `(8, 8, 3)`, from that of its image, `(16, 16, 3)`."""
    left, top, right, bottom = np.array(_CROPS[view // 2]) * _COLORS_SIDE / _SIDE
    box = (left, top, _COLORS_SIDE - right, _COLORS_SIDE - bottom)
    image = Image.fromarray(colors).resize(2 * (_VIEW_SIDE,), Image.Resampling.BILINEAR, box)
    return np.asarray(image)[:, ::-1] if view % 2 else np.asarray(image)


def _thumbnails(source):
    def thumbnail(number, payload, _):
        image = decode(source.read(payload)) * tf.cast(source.scale, tf.uint8)
        small = tf.image.resize(image, (_SIDE, _SIDE), antialias=True)
        grey = tf.image.rgb_to_grayscale(small)[..., 0]
        colors = tf.image.resize(small, (_COLORS_SIDE, _COLORS_SIDE), antialias=True)
        return number, *(tf.cast(tf.round(pixels), tf.uint8) for pixels in (grey, colors))

    examples = source.examples.map(thumbnail, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.ignore_errors().prefetch(tf.data.AUTOTUNE)


def _views(pixels):
    for left, top, right, bottom in _CROPS:
        part = pixels[top : _SIDE - bottom, left : _SIDE - right]
        yield part
        yield part[:, ::-1]
