"""Compute perceptual hashes of the images of a dataset, in memory or in files."""

import dataclasses
import math
import os
import zipfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tqdm
from PIL import Image

from keras_vit.core.files import read_npz, replacing
from keras_vit.core.run_dir import RunDir
from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.masks import unpack
from keras_vit.data.sources.source import Source

# A hash describes the lowest 12 x 12 frequencies. With 8 x 8 frequencies, different skies and
# blurred pictures would have similar hashes; with 16 x 16, a crop would change more bits than an
# index can search for.
HASH_SIZE = 12
# Number of 16-bit words of a hash.
WORDS = HASH_SIZE**2 // 16
# Side to which images are resized before they are hashed.
_SIDE = 128
# What is cut off a test image to make crops, in 128ths of its sides: left, top, right, bottom. Any
# crop of up to 5 % per side is similar to one of these crops. Mirrored crops are hashed as well.
_CROPS = (
    *((0, 0, 0, 0), (2, 2, 2, 2), (5, 5, 5, 5), (2, 5, 2, 5), (5, 2, 5, 2)),
    *((1, 1, 5, 5), (1, 5, 5, 1), (5, 1, 1, 5), (5, 5, 1, 1)),
    *((5, 3, 1, 3), (1, 3, 5, 3), (3, 1, 3, 5), (3, 5, 3, 1)),
)
# Side of the thumbnail of a view, which is a crop or a mirrored crop.
VIEW_SIDE = 8
# Side of the thumbnail of an image from which the thumbnails of all views are cut out.
_COLORS_SIDE = 16
# An image is blank if its grey levels, from 0 to 255, have a smaller standard deviation.
_MIN_CONTRAST = 4
# Name of the file that records which images are hashed, in a directory of `HashParts`.
RECORD = "hashes.json"
# Names of the arrays in the file of a part.
_ARRAYS = ("numbers", "words", "colors", "skipped", "blank")


@dataclasses.dataclass(frozen=True)
class Hashes:
    """The hashes of the images of a source.

    Args:
        source: the `Source`.
        numbers: int64 array `(images,)`, the numbers of the examples that have a hash.
        words: uint16 array `(images, views, WORDS)`, the hashes.
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
        """Return the ids of the examples with these numbers."""
        return tuple(map(self.source.find_id, numbers.tolist()))


def hash_images(source, all_views=False, name="images"):
    """Hash every image of a source, and make a tiny thumbnail of every image.

    Blank images have no hash, because it would depend on noise. Images that cannot be decoded are
    skipped.

    Args:
        source: the `Source`.
        all_views: whether to hash crops and mirrored crops as well: 26 hashes per image, not one.
        name: name of the dataset in the progress bar.

    Returns:
        `Hashes`.

    Raises:
        ValueError: if no image can be decoded.

    Reference:
        `imagehash.phash`: each bit of the hash belongs to a low frequency of the cosine transform
        of the grey image, and is 1 if the coefficient is above the median.
    """
    with tqdm.tqdm(desc=name, total=source.num_examples, unit=" images") as progress:
        hashes = hash_examples(source, None, all_views, progress.update)
    check_decoded(source.num_examples, len(hashes.skipped), name)
    return hashes


def hash_examples(source, numbers=None, all_views=False, on_image=None):
    """Hash examples of a source.

    Args:
        source: the `Source`.
        numbers: sorted int64 array of the numbers of the examples to hash; `None` for all.
        all_views: as in `hash_images`.
        on_image: function without arguments, called after each image that could be decoded.

    Returns:
        `Hashes` in the order of the numbers, one per image.
    """
    examples = source.examples if numbers is None else source.examples_with(numbers)
    expected = source.numbers if numbers is None else numbers
    blank, rows = [], []
    for number, pixels, thumbnail in _thumbnails(source, examples).as_numpy_iterator():
        if on_image is not None:
            on_image()
        if pixels.std() < _MIN_CONTRAST:
            blank.append(number)
            continue
        views = _views(pixels) if all_views else [pixels]
        words = np.stack([hash_pixels(view) for view in views])
        rows.append((number, words, thumbnail if all_views else view_colors(thumbnail, 0)))
    if numbers is not None:
        rows, blank = sorted(rows, key=lambda row: row[0]), sorted(blank)
    hashed, words, colors = zip(*rows, strict=True) if rows else ((), (), ())
    side, views = (_COLORS_SIDE, 2 * len(_CROPS)) if all_views else (VIEW_SIDE, 1)
    words = np.array(words, "uint16").reshape(len(words), views, WORDS)
    colors = np.array(colors, "uint8").reshape(len(colors), side, side, 3)
    hashed, blank = np.array(hashed, "int64"), np.array(blank, "int64")
    skipped = expected[~np.isin(expected, np.concatenate([hashed, blank]))]
    source.check_readable(skipped)
    return Hashes(source, hashed, words, colors, skipped, blank)


class HashParts:
    """The hashes of a large source, divided into parts, with one file per part in a directory.

    The images and the file name of a part depend only on the source and `part_size`. So several
    machines can share the work, and existing parts need not be computed again. Iteration yields the
    `Hashes` of one part after another, and computes missing parts.

    Args:
        source: the `Source`.
        directory: directory of the parts, created if it does not exist.
        data: name of the data, which is recorded in the directory.
        part_size: number of images per part.

    Raises:
        ValueError: if the directory has hashes of other images.

    Example:
    >>> import tempfile
    >>> from keras_vit.data.pipeline import find_source
    >>> digits = find_source("digits", "test", classes=["1", "7"])
    >>> parts = HashParts(digits, tempfile.mkdtemp(), "digits", part_size=50)
    >>> parts.missing(shard=(0, 2))
    [0]
    >>> len(parts.write(0).numbers)
    50
    >>> parts.missing()
    [1]
    """

    def __init__(
        self, source: Source, directory: str | os.PathLike, data: str, part_size: int = 5000
    ) -> None:
        self.source, self.part_size = source, part_size
        # `Source.examples_with` takes sorted numbers. They are only copied if they are not sorted.
        is_sorted = np.all(source.numbers[:-1] <= source.numbers[1:])
        self._numbers = source.numbers if is_sorted else np.sort(source.numbers)
        self.count = math.ceil(len(self._numbers) / part_size)
        settings = {
            "data": data,
            "num_images": len(self._numbers),
            "digest_of_images": source.digest(),
            "part_size": part_size,
        }
        job = RunDir(directory, settings, resume=True, file=RECORD)
        self.directory = job.path
        with job.open(shared=True):
            pass

    def __iter__(self):
        for part in range(self.count):
            hashes = self._load(part)
            yield self.write(part) if hashes is None else hashes

    def path(self, part):
        """Return the path of the file of a part."""
        return self.directory / f"part-{part:05d}-of-{self.count:05d}.npz"

    def numbers(self, part):
        """Return the numbers of the examples of a part."""
        return self._numbers[part * self.part_size : (part + 1) * self.part_size]

    def missing(self, shard=(0, 1)):
        """Return the parts of a shard, `(index, count)`, whose files are missing or incomplete."""
        index, count = shard
        return [part for part in range(index, self.count, count) if self._load(part) is None]

    def write_missing(self, shard=(0, 1)):
        """Write the missing parts of a shard with a progress bar, and return their number."""
        missing = self.missing(shard)
        num_images = sum(len(self.numbers(part)) for part in missing)
        with tqdm.tqdm(desc="train", total=num_images, unit=" images") as progress:
            for part in missing:
                self.write(part, progress.update)
        return len(missing)

    def write(self, part: int, on_image: Callable | None = None) -> Hashes:
        """Hash the images of a part and write its file.

        Args:
            part: number of the part.
            on_image: as in `keras_vit.data.deduplication.hashes.hash_examples`.

        Returns:
            `Hashes`.
        """
        hashes = hash_examples(self.source, self.numbers(part), on_image=on_image)
        self.store(part, hashes)
        return hashes

    def store(self, part, hashes):
        """Write the `Hashes` of a part to its file."""
        with replacing(self.path(part)) as partial:
            np.savez(partial, **{name: getattr(hashes, name) for name in _ARRAYS})

    def _load(self, part):
        """Return the `Hashes` of a part, or `None` if its file is missing or incomplete."""
        try:
            arrays = read_npz(self.path(part))
            numbers = np.concatenate([arrays[name] for name in ("numbers", "skipped", "blank")])
            lengths = {len(arrays[name]) for name in ("numbers", "words", "colors")}
            is_whole = np.array_equal(np.sort(numbers), self.numbers(part)) and len(lengths) == 1
            return Hashes(self.source, **arrays) if is_whole else None
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            return None


def check_decoded(num_images, num_skipped, name):
    """Raise `ValueError` if no image of a dataset can be decoded."""
    if num_skipped == num_images:
        raise ValueError(
            "At least one image must be a complete JPEG, PNG, GIF, BMP or still WebP file. "
            f"Received: {num_images} images ({name}), none of which can be decoded"
        )


def hash_pixels(pixels):
    """Return the hash of a grey image, uint8 `(height, width)`, as a uint16 array `(WORDS,)`."""
    import imagehash

    bits = imagehash.phash(Image.fromarray(pixels), HASH_SIZE).hash
    # Each word has bits of low and of high frequencies, so that few images have the same word.
    return np.packbits(bits.reshape(-1, WORDS).T).view("uint16")


def view_colors(colors, view):
    """Cut the thumbnail of a view, uint8 `(8, 8, 3)`, out of an image's thumbnail `(16, 16, 3)`."""
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
        crop = pixels[top : _SIDE - bottom, left : _SIDE - right]
        yield crop
        yield crop[:, ::-1]
