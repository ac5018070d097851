"""Find copies of test images among training images, and copies within one dataset."""

import dataclasses
import itertools
import logging
import os
import pathlib
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw
from scipy.cluster.hierarchy import DisjointSet

from keras_vit.core.arguments import is_integer
from keras_vit.core.files import replacing
from keras_vit.data.deduplication.hashes import (
    WORDS,
    HashParts,
    check_decoded,
    hash_images,
    view_colors,
)
from keras_vit.data.deduplication.index import HashIndex
from keras_vit.data.images.decoding import decode
from keras_vit.data.sources.source import Source

# Two images are copies if at most 22 of the 144 bits of their hashes differ, and the colors of
# their thumbnails have a correlation of at least 0.83. Measured on 1,631 different pictures
# (photographs, parts of photographs, faces of 25 x 25 pixels, polygons, texts, smooth noise and 540
# soft gradients; no skies):
# - False positives: none. The hashes of 45 of 2.7 million pairs of different images differ in at
#   most 22 bits, but the colors of these pairs have correlations of at most 0.80.
# - Copies of 277 photographs and parts of photographs that are found: all mirrored copies; 99 % of
#   copies that are rescaled by 0.5-2, brightened, or cropped by up to 5 % per side; 97 % of copies
#   that are compressed as JPEG of quality 30-95, or mirrored, cropped and compressed; 96 % of
#   copies that are cropped by 5 % at a corner, or have all of these changes.
# - Copies of images with hardly any detail are often missed: if they have all changes, 84 % of the
#   copies of drawn pictures and 65 % of the copies of faces are found.
MAX_DISTANCE = 22
_MIN_CORRELATION = 0.83
# Up to this distance, the index searches for at most three differing bits per 16-bit word.
_GREATEST_DISTANCE = 35
# Attributes of `Hashes` with the images that are not compared.
_OMITTED = ("skipped", "blank")

# Side of an image in a drawing, and height of the text above the image, in pixels.
_TILE, _ABOVE = 160, 50
# Number of images per row, and of characters of an id per line of the text.
_IN_A_ROW, _CHARACTERS = 8, 25


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
        pairs: one `Duplicate` per training image to leave out, the most similar pair first.
        skipped: ids of images of all sets that could not be decoded.
        blank: ids of images of all sets that have (almost) one color.
    """

    pairs: tuple[Duplicate, ...]
    skipped: tuple[str, ...]
    blank: tuple[str, ...]

    # The end of the comment "images that ..." in the file that `write_ids` writes.
    reason = "are in a test set"

    @property
    def ids(self):
        """Ids of the images to leave out."""
        return [pair.train_id for pair in self.pairs]


def find_duplicates(
    train: Source | HashParts, test: Source | Sequence[Source], max_distance: int = MAX_DISTANCE
) -> Duplicates:
    """Find the training images that are in a test set, even if they were slightly changed.

    All but a few percent of the copies are found that were rescaled, compressed again, mirrored,
    slightly brightened, or cropped by up to 5 % per side. Only hashes and thumbnails are kept in
    memory: of all images, or, with `HashParts`, of the test images and one part of the training
    images.

    Images of (almost) one color are not compared. Images with hardly any detail (skies, blurs,
    pictures of 8 x 8 pixels) are missed more often, and may be confused with other images.

    Args:
        train: the `Source` of the training images, or its `keras_vit.data.HashParts`.
        test: a `Source` or a list of `Source`s; 26 hashes per test image are kept.
        max_distance: greatest number of bits of the hashes that may differ, from 0 to 35.

    Returns:
        `Duplicates`: each training image that is in a test set, with the most similar test image.

    Raises:
        ValueError: if `max_distance` is out of range or no image of a set can be decoded.

    Reference:
        "An Image is Worth 16x16 Words", section 4.1.

    Example:
    >>> from keras_vit.data.pipeline import find_source
    >>> digits = find_source("digits", "test", classes=["1", "7"])
    >>> find_duplicates(digits, digits, max_distance=0).pairs[0]
    Duplicate(distance=0, train_id='digits#1019', test_set=0, test_id='digits#1019')
    """
    check_distance(max_distance)
    tests = [test] if isinstance(test, Source) else list(test)
    hashed = [hash_images(source, all_views=True, name="test") for source in tests]
    skipped, blank = ([hashes.ids(getattr(hashes, name)) for hashes in hashed] for name in _OMITTED)
    matcher = Matcher(hashed, max_distance)
    pairs, num_images, num_skipped = [], 0, 0
    for hashes in train if isinstance(train, HashParts) else [hash_images(train, name="train")]:
        pairs += matcher.match(hashes)
        skipped.append(hashes.ids(hashes.skipped))
        blank.append(hashes.ids(hashes.blank))
        num_skipped += len(hashes.skipped)
        num_images += len(hashes.numbers) + len(hashes.skipped) + len(hashes.blank)
    check_decoded(num_images, num_skipped, "train")
    columns = sorted(pairs), itertools.chain(*skipped), itertools.chain(*blank)
    duplicates = Duplicates(*map(tuple, columns))
    logging.getLogger("keras_vit").info(
        "%d duplicates; %d images were skipped because they cannot be decoded, %d are blank",
        *(len(duplicates.pairs), len(duplicates.skipped), len(duplicates.blank)),
    )
    return duplicates


def check_distance(max_distance):
    """Raise `ValueError` unless the index can search for a distance."""
    if not is_integer(max_distance) or not 0 <= max_distance <= _GREATEST_DISTANCE:
        raise ValueError(
            f"`max_distance` must be a whole number from 0 to {_GREATEST_DISTANCE}. "
            f"Received: max_distance={max_distance!r}"
        )


class Matcher:
    """Find images that look like a test image, by their hashes and then by their colors.

    Args:
        hashed: list of the `Hashes` of the test sets, with all views.
        max_distance: as in `find_duplicates`.
    """

    def __init__(self, hashed, max_distance):
        self._hashed, self._max_distance = hashed, max_distance
        self._starts = np.cumsum([0, *(len(hashes.numbers) for hashes in hashed)])
        words = np.concatenate([hashes.words for hashes in hashed])
        self._views, self._words = words.shape[1], words.reshape(-1, WORDS)
        self._index = HashIndex(self._words, max_distance)

    def match(self, searched):
        """Yield a `Duplicate` for each image in `searched`, a `Hashes`, that is in a test set."""
        nearest, _ = self._index.nearest(searched.words[:, 0])
        for row in np.flatnonzero(nearest >= 0):
            query, colors = searched.words[row, 0], searched.colors[row]
            for index in self._near_hashes(query, int(nearest[row])):
                distance = int(np.bitwise_count(query ^ self._words[index]).sum())
                image, view = divmod(index, self._views)
                test_set = int(np.searchsorted(self._starts, image, side="right")) - 1
                hashes, image = self._hashed[test_set], image - self._starts[test_set]
                if have_equal_colors(distance, colors, view_colors(hashes.colors[image], view)):
                    train_id = searched.source.find_id(int(searched.numbers[row]))
                    test_id = hashes.source.find_id(int(hashes.numbers[image]))
                    yield Duplicate(distance, train_id, test_set, test_id)
                    break

    def _near_hashes(self, query, nearest):
        """Yield the indices of all near hashes, beginning with `nearest`, which is known."""
        yield nearest
        # The other hashes are rarely needed: only if the image of `nearest` has other colors.
        distances = np.bitwise_count(self._words ^ query).sum(axis=1)
        near = np.flatnonzero(distances <= self._max_distance)
        yield from near[np.argsort(distances[near], kind="stable")].tolist()


def have_equal_colors(distance, colors, others):
    """Whether two thumbnails are similar; `distance` is the distance of the images' hashes."""
    # The thumbnail of a fine pattern may have one color, for which the correlation is undefined.
    is_equal = distance == 0 and np.array_equal(colors, others)
    return is_equal or _correlation(colors, others) >= _MIN_CORRELATION


def _correlation(colors, others):
    """Return the correlation of two thumbnails, which ignores brightness and contrast."""
    centered = [image - image.mean(axis=(0, 1)) for image in (colors, others)]
    norm = np.prod([np.linalg.norm(image) for image in centered])
    return np.vdot(*centered) / norm if norm else 0.0


@dataclasses.dataclass(frozen=True)
class Groups:
    """The result of `find_groups`.

    Args:
        groups: tuples of ids of copies, the largest group first. The ids of a group are in the
            order of the dataset.
        mixed: the groups whose images have different labels.
        skipped: ids of images that could not be decoded.
        blank: ids of images that have (almost) one color.
    """

    groups: tuple[tuple[str, ...], ...]
    mixed: tuple[tuple[str, ...], ...]
    skipped: tuple[str, ...]
    blank: tuple[str, ...]

    # The end of the comment "images that ..." in the file that `write_ids` writes.
    reason = "are copies of others"

    @property
    def ids(self):
        """Ids of the images to leave out: all but the first of each group."""
        return [id for group in self.groups for id in group[1:]]


def find_groups(source: Source, max_distance: int = MAX_DISTANCE) -> Groups:
    """Find groups of copies in one dataset. Copies of copies belong to the same group.

    Two images are copies by the rules of `find_duplicates`.

    Args:
        source: the `Source`; 26 hashes per image are kept in memory.
        max_distance: as in `find_duplicates`.

    Returns:
        `Groups`.

    Raises:
        ValueError: if `max_distance` is out of range or no image can be decoded.

    Example:
    >>> from keras_vit.data.pipeline import find_source
    >>> digits = find_source("digits", "test", classes=["1", "7"])
    >>> find_groups(digits, max_distance=0).groups
    ()
    """
    check_distance(max_distance)
    hashes = hash_images(source, all_views=True)
    members = _members(hashes, max_distance)
    labels = _labels(source, hashes.numbers[np.concatenate([[], *members]).astype(int)])
    groups, mixed = [], []
    for rows in sorted(members, key=len, reverse=True):
        numbers = hashes.numbers[rows]
        groups.append(hashes.ids(numbers))
        if len({labels[number] for number in numbers.tolist()}) > 1:
            mixed.append(groups[-1])
    not_compared = (hashes.ids(getattr(hashes, name)) for name in _OMITTED)
    return Groups(tuple(groups), tuple(mixed), *not_compared)


def _members(hashes, max_distance):
    """Return the sorted indices of the images of each group of at least two images."""
    words, colors, seen = hashes.words, hashes.colors, {}
    groups = DisjointSet(range(len(words)))
    for row, (word, thumbnail) in enumerate(zip(words[:, 0], colors, strict=True)):
        groups.merge(seen.setdefault((word.tobytes(), thumbnail.tobytes()), row), row)
    # If images are equal, only the first of these images is compared with others.
    rows = np.array([*seen.values()], int)
    views = words.shape[1]
    index = HashIndex(words[rows].reshape(-1, WORDS), max_distance)
    thumbnails = [view_colors(colors[row], 0) for row in rows]
    differ = set()
    for query, match, distances in index.within_distance(words[rows, 0]):
        is_other = query != match // views
        pairs = (query[is_other], match[is_other], distances[is_other])
        for first, second, distance in zip(*map(np.ndarray.tolist, pairs), strict=True):
            image, view = int(rows[second // views]), second % views
            if (first, second) in differ or groups.connected(int(rows[first]), image):
                continue
            if have_equal_colors(distance, thumbnails[first], view_colors(colors[image], view)):
                groups.merge(int(rows[first]), image)
            else:
                differ.add((first, second))
    return [sorted(group) for group in groups.subsets() if len(group) > 1]


def _labels(source, numbers):
    """Return a dictionary from the numbers of examples to their labels, as comparable bytes."""
    if not len(numbers):
        return {}
    examples = source.examples_with(np.sort(numbers)).map(lambda number, _, label: (number, label))
    return {int(number): label.tobytes() for number, label in examples.as_numpy_iterator()}


def draw_pairs(pairs, train, tests, path):
    """Draw each training image next to the test image of which it is a copy.

    Args:
        pairs: list of `Duplicate`s.
        train: `Source` of the training images.
        tests: list of `Source`s of the test sets.
        path: path of the PNG file to write.
    """
    rows = [
        (f"{pair.distance} bits", [(0, pair.train_id), (1 + pair.test_set, pair.test_id)])
        for pair in pairs
    ]
    _draw(rows, [train, *tests], path)


def draw_groups(groups, source, path):
    """Draw the first images of each group of copies in a row.

    Args:
        groups: list of groups, tuples of ids.
        source: the `Source` of the images.
        path: path of the PNG file to write.
    """
    rows = [(f"{len(group)} images", [(0, id) for id in group[:_IN_A_ROW]]) for group in groups]
    _draw(rows, [source], path)


def _draw(rows, sources, path):
    """Draw rows `(heading, images)`; an image is given as `(index of its source, id)`."""
    tiles = [
        _read_tiles(source, {id for _, images in rows for index, id in images if index == number})
        for number, source in enumerate(sources)
    ]
    columns = max((len(images) for _, images in rows), default=1)
    sheet = Image.new("RGB", (columns * _TILE, max(len(rows), 1) * (_ABOVE + _TILE)), "white")
    drawing = ImageDraw.Draw(sheet)
    for row, (heading, images) in enumerate(rows):
        top = row * (_ABOVE + _TILE)
        drawing.text((2, top + 2), heading, fill="black")
        for column, (number, id) in enumerate(images):
            # Draw the end of the id in two lines, which are as wide as the image.
            text = id.encode("ascii", "replace").decode()[-2 * _CHARACTERS :]
            text = f"{text[:_CHARACTERS]}\n{text[_CHARACTERS:]}"
            drawing.text((column * _TILE + 2, top + 20), text, fill="black")
            sheet.paste(tiles[number][id], (column * _TILE, top + _ABOVE))
    sheet.save(path, "PNG")


def _read_tiles(source, ids):
    numbers = np.array(sorted(source.find_numbers(ids)), "int64")
    return {
        source.find_id(int(number)): Image.fromarray(
            source.pixels(decode(source.read(payload))).numpy()
        ).resize((_TILE, _TILE))
        for number, payload, _ in (source.examples_with(numbers) if len(numbers) else ())
    }


def write_ids(found: Groups | Duplicates, path: str | os.PathLike) -> None:
    """Write the ids of the images to leave out, one per line, for `load(..., exclude=path)`.

    Args:
        found: result of `find_duplicates` or `find_groups`.
        path: path of the file.

    Raises:
        ValueError: if an id contains a line break, or begins or ends with spaces.
    """
    ids = sorted(found.ids)
    for id in ids:
        if id.splitlines() != [id] or id != id.strip():
            raise ValueError(f"An id must be one line without spaces around it. Received: {id!r}")
    path = pathlib.Path(path).expanduser()
    lines = [f"# {len(ids)} images that {found.reason}", *ids]
    with replacing(path) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
