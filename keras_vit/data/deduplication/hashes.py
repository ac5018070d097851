"""Perceptual hashes of the images of a dataset, and an index that finds those that are near."""

import dataclasses
import itertools

import imagehash
import numpy as np
import tensorflow as tf
import tqdm
from PIL import Image

from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.base import Source

# The lowest 12 x 12 frequencies. Of 8 x 8, pictures of skies and of blurred things are alike; of
# 16 x 16, more bits change when a picture is cropped than an index can look for.
HASH_SIZE = 12
# A hash is so many words of 16 bits: the tables of the index have an entry for each word.
WORDS = HASH_SIZE**2 // 16
_SIDE = 128
# What is cut off a test image, in 128ths of its sides: left, top, right, bottom. Any crop of up to
# 5 % a side is near one of them. Each is hashed mirrored, too.
_CROPS = (
    *((0, 0, 0, 0), (2, 2, 2, 2), (5, 5, 5, 5), (2, 5, 2, 5), (5, 2, 5, 2)),
    *((1, 1, 5, 5), (1, 5, 5, 1), (5, 1, 1, 5), (5, 5, 1, 1)),
    *((5, 3, 1, 3), (1, 3, 5, 3), (3, 1, 3, 5), (3, 5, 3, 1)),
)
# Sides of the thumbnail of a test image, of which views are cut out, and of a view of it.
_COLOURS_SIDE, _VIEW_SIDE = 16, 8
# Standard deviation in grey levels of 255, below which an image counts as blank.
_MIN_CONTRAST = 4
_QUERIES_AT_ONCE = 4096
_CANDIDATES_AT_ONCE = 2**21


@dataclasses.dataclass(frozen=True)
class Hashes:
    """The hashes of the images of a source, without those that have none.

    Args:
        source: the `Source`.
        numbers: int64 array `(images,)`, the numbers of the examples.
        words: uint16 array `(images, views, WORDS)`.
        colours: uint8 array of thumbnails, `(images, 16, 16, 3)` if all views were hashed,
            otherwise `(images, 8, 8, 3)`.
        skipped: ids of the images that could not be decoded.
        blank: ids of the images of (almost) one colour.
    """

    source: Source
    numbers: np.ndarray
    words: np.ndarray
    colours: np.ndarray
    skipped: tuple[str, ...]
    blank: tuple[str, ...]


def hash_images(source, all_views=False, name="images"):
    """Hashes every image of a source; of the images themselves a tiny thumbnail is kept.

    Blank images have no hash: all that a hash tells of them is noise. An image that cannot be
    decoded is skipped.

    Args:
        source: the `Source`.
        all_views: whether to hash crops and mirror images, too: 26 hashes an image, not one.
        name: what the progress bar calls them.

    Returns:
        `Hashes`.

    Raises:
        ValueError: if no image can be decoded.

    Reference:
        `imagehash.phash`: which of the lowest frequencies of the cosine transform of the grey
        image are above their median.
    """
    seen, blank, numbers, words, colours = set(), [], [], [], []
    thumbnails = _thumbnails(source).as_numpy_iterator()
    for number, pixels, thumbnail in tqdm.tqdm(
        thumbnails, name, source.num_examples, unit=" images"
    ):
        seen.add(number)
        if pixels.std() < _MIN_CONTRAST:
            blank.append(source.find_id(int(number)))
            continue
        numbers.append(number)
        views = _views(pixels) if all_views else [pixels]
        words.append(np.stack([hash_pixels(view) for view in views]))
        colours.append(thumbnail if all_views else view_colours(thumbnail, 0))
    if not seen:
        raise ValueError(
            "An image of a dataset must be a complete JPEG, PNG, GIF, BMP or still WebP file. "
            f"Received: {source.num_examples} images ({name}), none of which can be decoded"
        )
    skipped = [source.find_id(number) for number in source.numbers.tolist() if number not in seen]
    side, views = (_COLOURS_SIDE, 2 * len(_CROPS)) if all_views else (_VIEW_SIDE, 1)
    words = np.array(words, "uint16").reshape(len(words), views, WORDS)
    colours = np.array(colours, "uint8").reshape(len(words), side, side, 3)
    numbers = np.array(numbers, "int64")
    return Hashes(source, numbers, words, colours, tuple(skipped), tuple(blank))


def hash_pixels(pixels):
    """The hash of a grey image.

    Args:
        pixels: uint8 array `(height, width)`.

    Returns:
        A uint16 array `(WORDS,)`.
    """
    bits = imagehash.phash(Image.fromarray(pixels), HASH_SIZE).hash
    # Each word has bits of low and of high frequencies, so that none is the same for many images.
    return np.packbits(bits.reshape(-1, WORDS).T).view("uint16")


def view_colours(colours, view):
    """The thumbnail of a view of an image.

    Args:
        colours: uint8 array `(16, 16, 3)`, the thumbnail of the image.
        view: the place of the view among those that are hashed.

    Returns:
        A uint8 array `(8, 8, 3)`.
    """
    left, top, right, bottom = np.array(_CROPS[view // 2]) * _COLOURS_SIDE / _SIDE
    box = (left, top, _COLOURS_SIDE - right, _COLOURS_SIDE - bottom)
    image = Image.fromarray(colours).resize(2 * (_VIEW_SIDE,), Image.Resampling.BILINEAR, box)
    return np.asarray(image)[:, ::-1] if view % 2 else np.asarray(image)


def find_nearest(queries, hashes, max_distance):
    """Finds for each query the nearest hash, if one is near enough. Exact.

    Two hashes that differ in few bits have a word in common, or almost, so that hashes are looked
    up by each of their words. Equal hashes are looked up once.

    Args:
        queries: uint16 array `(queries, WORDS)`.
        hashes: uint16 array `(hashes, WORDS)`.
        max_distance: the greatest number of bits that may differ.

    Returns:
        `(indices, distances)`, int64 arrays `(queries,)`: the place of the first of the nearest
        hashes and its distance; both are -1 where none is near enough.

    Reference:
        Norouzi, Punjani, Fleet: Fast Search in Hamming Space with Multi-Index Hashing, CVPR 2012.

    Example:
    >>> hashes = np.array([[0] * 9, [65535] * 9], "uint16")
    >>> find_nearest(hashes ^ np.uint16(1), hashes[1:], max_distance=9)
    (array([-1,  0]), array([-1,  9]))
    """
    queries, _, inverse = _distinct(queries)
    hashes, first, _ = _distinct(hashes)
    columns = _columns(queries), _columns(hashes)
    none = np.iinfo("int64").max
    # Distance and place in one number, of which the least is wanted.
    best = np.full(len(queries), none)
    for word, radius in enumerate(_radii(max_distance)):
        for pairs in _candidates(queries[:, word], hashes[:, word], radius):
            query, found, distances = _keep_near(*columns, *pairs, max_distance)
            np.minimum.at(best, query, distances.astype("int64") << 40 | first[found])
    best = best[inverse]
    is_found = best != none
    return (
        np.where(is_found, best & (2**40 - 1), -1),
        np.where(is_found, best >> 40, -1),
    )


def _thumbnails(source):
    def thumbnail(number, payload, _):
        image = decode(source.read(payload)) * tf.cast(source.scale, tf.uint8)
        small = tf.image.resize(image, (_SIDE, _SIDE), antialias=True)
        grey = tf.image.rgb_to_grayscale(small)[..., 0]
        colours = tf.image.resize(small, (_COLOURS_SIDE, _COLOURS_SIDE), antialias=True)
        return number, *(tf.cast(tf.round(pixels), tf.uint8) for pixels in (grey, colours))

    examples = source.examples.map(thumbnail, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.ignore_errors().prefetch(tf.data.AUTOTUNE)


def _views(pixels):
    for left, top, right, bottom in _CROPS:
        part = pixels[top : _SIDE - bottom, left : _SIDE - right]
        yield part
        yield part[:, ::-1]


def _distinct(hashes):
    """Different hashes, the first place of each, and which of them each of the given ones is."""
    rows = np.ascontiguousarray(hashes).view(np.dtype((np.void, 2 * WORDS))).ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return hashes[first], first, inverse


def _radii(max_distance):
    """How many bits of each word may differ, so that no hash within the distance is missed.

    If more differ in every word, they are more than `max_distance` together. Words behind those
    that are returned need not be looked up.
    """
    radius, rest = divmod(max_distance, WORDS)
    return [radius] * (rest + 1) + [radius - 1] * ((WORDS - rest - 1) if radius else 0)


def _candidates(queries, hashes, radius):
    """Yields places of queries and of hashes whose words differ in at most so many bits."""
    order = np.argsort(hashes, kind="stable")
    starts = np.searchsorted(hashes[order], np.arange(2**16 + 1))
    every = np.arange(2**16)
    masks = every[np.bitwise_count(every) <= radius]
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        near = queries[first : first + _QUERIES_AT_ONCE, None] ^ masks
        counts = (starts[near + 1] - starts[near]).ravel()
        used = np.flatnonzero(counts)
        begins, counts = starts[near].ravel()[used], counts[used]
        ends = np.cumsum(counts)
        # Where many hashes have the same word, the candidates are too many for the memory at once.
        cuts = np.searchsorted(ends, np.arange(0, counts.sum(), _CANDIDATES_AT_ONCE))
        for start, stop in itertools.pairwise([*cuts, len(used)]):
            part = slice(start, stop)
            places = np.arange(counts[part].sum())
            shifts = begins[part] - np.cumsum(counts[part]) + counts[part]
            found = order[places + np.repeat(shifts, counts[part])]
            yield first + np.repeat(used[part] // len(masks), counts[part]), found


def _columns(hashes):
    """The hashes as arrays of 64 bits, whose bits are counted at once."""
    padded = np.pad(hashes, ((0, 0), (0, -WORDS % 4)))
    return np.ascontiguousarray(padded.view("uint64").T)


def _keep_near(queries, hashes, query, found, max_distance):
    """Of pairs of places those whose hashes are near, and their distances."""
    distances = np.zeros(len(query), "uint8")
    # Most pairs differ enough in the first 64 bits.
    for column, other in zip(queries, hashes, strict=True):
        distances = distances + np.bitwise_count(column[query] ^ other[found])
        near = distances <= max_distance
        query, found, distances = query[near], found[near], distances[near]
    return query, found, distances
