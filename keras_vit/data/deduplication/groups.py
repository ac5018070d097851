"""Find training images that are in a test set, so that they can be left out."""

import dataclasses
import logging
import pathlib

import numpy as np
from PIL import Image, ImageDraw

from keras_vit.core.arguments import is_integer
from keras_vit.core.files import replacing
from keras_vit.data.deduplication.hashes import WORDS, hash_images, view_colors
from keras_vit.data.deduplication.index import find_nearest
from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.base import Source

# Number of the 144 bits of a hash, and correlation of the colors of thumbnails. Measured on 1,631
# different pictures (photographs, parts of them, faces of 25 x 25 pixels, polygons, texts, smooth
# noise and 540 soft gradients; no skies): 45 of 2.7 million pairs of a test and a training image
# are within 22 bits, at correlations of up to 0.80, so none is reported. Of 277 photographs and
# their parts, 99 % are found when rescaled to 0.5-2 times the size, brightened or cropped by up to
# 5 % per side; all when mirrored; 97 % when compressed as JPEG of quality 30-95, or mirrored,
# cropped and compressed; 96 % when 5 % are cut off a corner, or after all of these changes. The
# missed ones have hardly any detail: after all changes, 84 % of the drawn pictures and 65 % of the
# faces are found.
MAX_DISTANCE = 22
_MIN_CORRELATION = 0.83
# The index looks up words of 16 bits with up to three of them changed.
_GREATEST_DISTANCE = 35
_TILE, _CAPTION = 160, 30


@dataclasses.dataclass(frozen=True, order=True)
class Duplicate:
    """A training image that is in a test set.

    Args:
        distance: number of the 144 bits of the hashes that differ.
        train_id: id of the training image.
        test_set: index of the test set.
        test_id: id of the most similar image in the test set.
    """

    distance: int
    train_id: str
    test_set: int
    test_id: str


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The result of `find_duplicates`.

    Args:
        pairs: a `Duplicate` per training image to leave out, the most similar first.
        skipped: ids of images of all sets that could not be decoded.
        blank: ids of images of all sets that have (almost) one color.
    """

    pairs: tuple[Duplicate, ...]
    skipped: tuple[str, ...]
    blank: tuple[str, ...]

    def __len__(self):
        return len(self.pairs)

    def __iter__(self):
        return iter(self.pairs)


def find_duplicates(train, test, max_distance=MAX_DISTANCE):
    """Find the training images that are in a test set, even if they were changed a little.

    All but a few percent are found when they were rescaled, compressed again, mirrored, brightened
    a little or cropped by up to 5 % per side. Only hashes and thumbnails are kept in memory.

    Images of (almost) one color are not compared. Images with hardly any detail (skies, blurs,
    pictures of 8 x 8 pixels) are missed more often, and may be confused with others.

    Args:
        train: the `Source` to search.
        test: a `Source`, or a list of them; 26 hashes per image are kept.
        max_distance: greatest number of bits of the hashes that may differ, from 0 to 35.

    Returns:
        `Duplicates`: each training image that is in a test set, with the most similar image there.

    Raises:
        ValueError: if `max_distance` is out of range or no image of a set can be decoded.

    Reference:
        "An Image is Worth 16x16 Words", section 4.1.

    Example:
    >>> from keras_vit.data.datasets import find_source
    >>> digits = find_source("digits", "test", classes=["1", "7"])
    >>> find_duplicates(digits, digits, max_distance=0).pairs[0]
    Duplicate(distance=0, train_id='digits#1019', test_set=0, test_id='digits#1019')
    """
    if not is_integer(max_distance) or not 0 <= max_distance <= _GREATEST_DISTANCE:
        raise ValueError(
            f"`max_distance` must be a whole number from 0 to {_GREATEST_DISTANCE}. "
            f"Received: max_distance={max_distance!r}"
        )
    tests = [test] if isinstance(test, Source) else list(test)
    if not tests:
        raise ValueError("`test` must be one or more test sets. Received: none")
    hashed = [hash_images(source, all_views=True, name="test") for source in tests]
    searched = hash_images(train, name="train")
    every = [*hashed, searched]
    found = Duplicates(
        tuple(sorted(match_hashes(searched, hashed, max_distance))),
        tuple(id for hashes in every for id in hashes.skipped),
        tuple(id for hashes in every for id in hashes.blank),
    )
    logging.getLogger("keras_vit").info(
        "%d duplicates; %d images were skipped because they cannot be decoded, %d are blank",
        *(len(found), len(found.skipped), len(found.blank)),
    )
    return found


def match_hashes(searched, hashed, max_distance):
    """Find the images that look like one of the test sets, by their hashes and then their colors.

    Args:
        searched: `Hashes` of the images to search.
        hashed: list of `Hashes` of all views of the test sets.
        max_distance: as in `find_duplicates`.

    Yields:
        A `Duplicate` for each of them.
    """
    starts = np.cumsum([0, *(len(hashes.numbers) for hashes in hashed)])
    words = np.concatenate([hashes.words for hashes in hashed])
    views, words = words.shape[1], words.reshape(-1, WORDS)
    nearest, _ = find_nearest(searched.words[:, 0], words, max_distance)
    for place in np.flatnonzero(nearest >= 0):
        query, colors = searched.words[place, 0], searched.colors[place]
        for near in _near_ones(query, words, int(nearest[place]), max_distance):
            image, view = divmod(near, views)
            test_set = int(np.searchsorted(starts, image, side="right")) - 1
            hashes, image = hashed[test_set], image - starts[test_set]
            distance = int(np.bitwise_count(query ^ words[near]).sum())
            others = view_colors(hashes.colors[image], view)
            # A fine pattern has a thumbnail of one color, whose correlation is undefined.
            is_equal = distance == 0 and np.array_equal(colors, others)
            if not is_equal and _correlation(colors, others) < _MIN_CORRELATION:
                continue
            train_id = searched.source.find_id(int(searched.numbers[place]))
            test_id = hashes.source.find_id(int(hashes.numbers[image]))
            yield Duplicate(distance, train_id, test_set, test_id)
            break


def write_ids(duplicates, path):
    """Write the ids of the images to leave out, one per line, for `load(..., exclude=path)`.

    Args:
        duplicates: result of `find_duplicates`.
        path: path of the file.

    Raises:
        ValueError: if an id does not fit on a line.
    """
    ids = sorted(pair.train_id for pair in duplicates)
    for id in ids:
        if id.splitlines() != [id] or id != id.strip():
            raise ValueError(f"An id must be one line without spaces around it. Received: {id!r}")
    path = pathlib.Path(path).expanduser()
    lines = [f"# {len(ids)} images that are in a test set", *ids]
    with replacing(path) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def draw_pairs(pairs, train, tests, path):
    """Draw each training image next to the similar one of the test set.

    Args:
        pairs: list of `Duplicate`s.
        train: `Source` of the training images.
        tests: list of the `Source`s of the test sets.
        path: path of the PNG file to write.
    """
    ours = _read_tiles(train, {pair.train_id for pair in pairs})
    theirs = [
        _read_tiles(source, {pair.test_id for pair in pairs if pair.test_set == place})
        for place, source in enumerate(tests)
    ]
    sheet = Image.new("RGB", (2 * _TILE, max(len(pairs), 1) * (_TILE + _CAPTION)), "white")
    drawing = ImageDraw.Draw(sheet)
    for row, pair in enumerate(pairs):
        top = row * (_TILE + _CAPTION)
        sheet.paste(ours[pair.train_id], (0, top + _CAPTION))
        sheet.paste(theirs[pair.test_set][pair.test_id], (_TILE, top + _CAPTION))
        caption = f"{pair.distance} bits: {pair.train_id}\n{pair.test_id}"
        drawing.text((2, top + 2), caption.encode("ascii", "replace").decode(), fill="black")
    sheet.save(path, "PNG")


def _near_ones(query, words, nearest, max_distance):
    """Yield the indices of the near hashes, beginning with the nearest, which is known."""
    yield nearest
    # Rarely needed: only if the nearest one has other colors.
    distances = np.bitwise_count(words ^ query).sum(axis=1)
    near = np.flatnonzero(distances <= max_distance)
    yield from near[np.argsort(distances[near], kind="stable")].tolist()


def _correlation(colors, others):
    """Return the correlation of thumbnails, which ignores brightness and contrast."""
    centered = [part - part.mean(axis=(0, 1)) for part in (colors, others)]
    norm = np.prod([np.linalg.norm(part) for part in centered])
    return np.vdot(*centered) / norm if norm else 0.0


def _read_tiles(source, ids):
    wanted = set(source.find_numbers(ids))
    tiles = {}
    for number, payload, _ in source.examples:
        if int(number) in wanted:
            pixels = decode(source.read(payload)).numpy() * np.uint8(source.scale)
            tile = Image.fromarray(pixels).resize((_TILE, _TILE))
            tiles[source.find_id(int(number))] = tile
    return tiles
