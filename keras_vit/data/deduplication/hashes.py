"""Perceptual hashes of the images of a dataset."""

import dataclasses

import numpy as np
import tensorflow as tf
import tqdm
from PIL import Image

from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.base import Source
from keras_vit.data.sources.masks import unpack

try:
    import imagehash
except ModuleNotFoundError:
    imagehash = None

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
# Side of the thumbnail of a view.
VIEW_SIDE = 8
# Side of the thumbnail of an image whose views are hashed.
_COLORS_SIDE = 16
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
        skipped: int64 array, the numbers of the examples that could not be decoded.
        blank: int64 array, the numbers of the examples of (almost) one color.
    """

    source: Source
    numbers: np.ndarray
    words: np.ndarray
    colors: np.ndarray
    skipped: np.ndarray
    blank: np.ndarray

    def ids(self, numbers):
        """Return the ids of examples by their numbers."""
        return tuple(map(self.source.find_id, numbers.tolist()))


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
    with tqdm.tqdm(desc=name, total=source.num_examples, unit=" images") as progress:
        hashes = hash_examples(source, source.examples, source.numbers, all_views, progress.update)
    check_decoded(source.num_examples, len(hashes.skipped), name)
    return hashes


def hash_part(source, numbers, on_image=None):
    """Hash the examples with some numbers, without reading the others.

    Args:
        source: the `Source`.
        numbers: int64 array, sorted.
        on_image: function without arguments, called after each image that could be decoded.

    Returns:
        `Hashes` in the order of the numbers, one per image.
    """
    hashes = hash_examples(source, source.some(numbers), numbers, False, on_image)
    order = np.argsort(hashes.numbers)
    ordered = {name: getattr(hashes, name)[order] for name in ("numbers", "words", "colors")}
    return dataclasses.replace(hashes, **ordered, blank=np.sort(hashes.blank))


def hash_examples(source, examples, expected, all_views, on_image=None):
    """Hash examples of a source.

    Args:
        source: the `Source`.
        examples: dataset like `source.examples`.
        expected: int64 array of the numbers of the examples.
        all_views: as in `hash_images`.
        on_image: as in `hash_part`.

    Returns:
        `Hashes` in the order of the examples.
    """
    if imagehash is None:
        raise ValueError(
            "De-duplication needs imagehash: pip install 'keras-vit-zoo[dedup]'. "
            "Received: no imagehash"
        )
    blank, numbers, words, colors = [], [], [], []
    for number, pixels, thumbnail in _thumbnails(source, examples).as_numpy_iterator():
        if on_image is not None:
            on_image()
        if pixels.std() < _MIN_CONTRAST:
            blank.append(number)
            continue
        numbers.append(number)
        views = _views(pixels) if all_views else [pixels]
        words.append(np.stack([hash_pixels(view) for view in views]))
        colors.append(thumbnail if all_views else view_colors(thumbnail, 0))
    side, views = (_COLORS_SIDE, 2 * len(_CROPS)) if all_views else (VIEW_SIDE, 1)
    words = np.array(words, "uint16").reshape(len(words), views, WORDS)
    colors = np.array(colors, "uint8").reshape(len(colors), side, side, 3)
    numbers, blank = np.array(numbers, "int64"), np.array(blank, "int64")
    skipped = expected[~np.isin(expected, np.concatenate([numbers, blank]))]
    source.check_readable(skipped)
    return Hashes(source, numbers, words, colors, skipped, blank)


def check_decoded(num_images, num_skipped, name):
    """Raise `ValueError` if no image of a set can be decoded."""
    if num_skipped == num_images:
        raise ValueError(
            "An image of a dataset must be a complete JPEG, PNG, GIF, BMP or still WebP file. "
            f"Received: {num_images} images ({name}), none of which can be decoded"
        )


def hash_pixels(pixels):
    """Return the hash of a grey image, uint8 `(height, width)`, as a uint16 array `(WORDS,)`."""
    bits = imagehash.phash(Image.fromarray(pixels), HASH_SIZE).hash
    # Each word has bits of low and high frequencies, so that few images have the same word.
    return np.packbits(bits.reshape(-1, WORDS).T).view("uint16")


def view_colors(colors, view):
    """Return the thumbnail of a view, uint8 `(8, 8, 3)`, from that of its image, `(16, 16, 3)`."""
    left, top, right, bottom = np.array(_CROPS[view // 2]) * _COLORS_SIDE / _SIDE
    box = (left, top, _COLORS_SIDE - right, _COLORS_SIDE - bottom)
    image = Image.fromarray(colors).resize(2 * (VIEW_SIDE,), Image.Resampling.BILINEAR, box)
    return np.asarray(image)[:, ::-1] if view % 2 else np.asarray(image)


def _thumbnails(source, examples):
    def thumbnail(number, payload, _):
        encoded = source.read(payload)
        image = unpack(encoded)[0] if source.has_masks else encoded
        image = source.pixels(decode(image))
        small = tf.image.resize(image, (_SIDE, _SIDE), antialias=True)
        grey = tf.image.rgb_to_grayscale(small)[..., 0]
        colors = tf.image.resize(small, (_COLORS_SIDE, _COLORS_SIDE), antialias=True)
        return number, *(tf.cast(tf.round(pixels), tf.uint8) for pixels in (grey, colors))

    examples = examples.map(thumbnail, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.ignore_errors().prefetch(tf.data.AUTOTUNE)


def _views(pixels):
    for left, top, right, bottom in _CROPS:
        part = pixels[top : _SIDE - bottom, left : _SIDE - right]
        yield part
        yield part[:, ::-1]
