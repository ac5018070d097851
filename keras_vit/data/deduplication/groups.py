"""Find groups of images of one set that are copies of each other."""

import dataclasses

import numpy as np

from keras_vit.data.deduplication.hashes import WORDS, hash_images, view_colors
from keras_vit.data.deduplication.index import HashIndex
from keras_vit.data.deduplication.pairs import MAX_DISTANCE, check_distance, have_equal_colors
from keras_vit.data.sources.base import Source


@dataclasses.dataclass(frozen=True)
class Groups:
    """The result of `find_groups`.

    Args:
        groups: tuples of ids of copies, the largest group first; the ids of a group are in the
            order of the set.
        mixed: the groups whose images have more than one label.
        skipped: ids of images that could not be decoded.
        blank: ids of images that have (almost) one color.
    """

    groups: tuple[tuple[str, ...], ...]
    mixed: tuple[tuple[str, ...], ...]
    skipped: tuple[str, ...]
    blank: tuple[str, ...]

    # Why the images are left out, after "images that".
    reason = "are copies of others"

    @property
    def ids(self):
        """Ids of the images to leave out: all but the first of each group."""
        return [id for group in self.groups for id in group[1:]]

    def __len__(self):
        return len(self.groups)

    def __iter__(self):
        return iter(self.groups)


def find_groups(source: Source, max_distance: int = MAX_DISTANCE) -> Groups:
    """Find groups of images of one set that are copies of each other, by a chain of copies.

    Two images are copies by the rules of `find_duplicates`.

    Args:
        source: the `Source`; 26 hashes per image are kept in memory.
        max_distance: as in `find_duplicates`.

    Returns:
        `Groups`.

    Raises:
        ValueError: if `max_distance` is out of range or no image can be decoded.

    Example:
    >>> from keras_vit.data.loading import find_source
    >>> digits = find_source("digits", "test", classes=["1", "7"])
    >>> len(find_groups(digits, max_distance=0))
    0
    """
    check_distance(max_distance)
    hashes = hash_images(source, all_views=True)
    members = _members(_first_copies(hashes, max_distance))
    labels = _labels(source, hashes.numbers[np.concatenate([[], *members]).astype(int)])
    groups, mixed = [], []
    for places in sorted(members, key=len, reverse=True):
        numbers = hashes.numbers[places]
        groups.append(hashes.ids(numbers))
        if len({labels[number] for number in numbers.tolist()}) > 1:
            mixed.append(groups[-1])
    left = hashes.ids(hashes.skipped), hashes.ids(hashes.blank)
    return Groups(tuple(groups), tuple(mixed), *left)


def _first_copies(hashes, max_distance):
    """Return the place of the first image of the group of each image."""
    words, colors = hashes.words, hashes.colors
    if not len(words):
        # All images are blank.
        return []
    first = _Forest(_first_equal(hashes))
    # Equal images are compared with the others once.
    places = np.unique(first.parents)
    views = words.shape[1]
    index = HashIndex(words[places].reshape(-1, WORDS), max_distance)
    thumbnails = [view_colors(colors[place], 0) for place in places]
    differ = set()
    for query, found, distances in index.near(words[places, 0]):
        is_other = query != found // views
        pairs = (query[is_other], found[is_other], distances[is_other])
        for one, other, distance in zip(*map(np.ndarray.tolist, pairs), strict=True):
            image, view = places[other // views], other % views
            if (one, other) in differ or first.root(places[one]) == first.root(image):
                continue
            if have_equal_colors(distance, thumbnails[one], view_colors(colors[image], view)):
                first.join(places[one], image)
            else:
                differ.add((one, other))
    return [first.root(place) for place in range(len(words))]


def _first_equal(hashes):
    """Return for each image the place of the first one with its hash and thumbnail."""
    pairs, seen = zip(hashes.words[:, 0], hashes.colors, strict=True), {}
    return [
        seen.setdefault((word.tobytes(), colors.tobytes()), place)
        for place, (word, colors) in enumerate(pairs)
    ]


class _Forest:
    """Disjoint sets of places; the root of a set is its first place."""

    def __init__(self, parents):
        self.parents = parents

    def root(self, place):
        """Return the first place of the set of a place."""
        while self.parents[place] != place:
            self.parents[place] = place = self.parents[self.parents[place]]
        return place

    def join(self, one, other):
        """Join the sets of two places."""
        first, last = sorted((self.root(one), self.root(other)))
        self.parents[last] = first


def _members(first_copies):
    """Return the places of each group of at least two."""
    members = {}
    for place, first in enumerate(first_copies):
        members.setdefault(first, []).append(place)
    return [places for places in members.values() if len(places) > 1]


def _labels(source, numbers):
    """Return the label of each of the examples with some numbers, as something to compare."""
    if not len(numbers):
        return {}
    examples = source.some(np.sort(numbers)).map(lambda number, _, label: (number, label))
    return {int(number): label.tobytes() for number, label in examples.as_numpy_iterator()}
