"""An index that finds the hashes within a distance of others."""

import itertools

import numpy as np

from keras_vit.data.deduplication.hashes import WORDS

_QUERIES_AT_ONCE = 4096
_CANDIDATES_AT_ONCE = 2**21


def find_nearest(queries, hashes, max_distance):
    """Find the nearest hash for each query, if one is near enough. The search is exact.

    Two hashes that differ in few bits have a word that is equal or almost equal, so hashes are
    looked up by each of their words. Equal hashes are looked up once.

    Args:
        queries: uint16 array `(queries, WORDS)`.
        hashes: uint16 array `(hashes, WORDS)`.
        max_distance: greatest number of bits that may differ.

    Returns:
        `(indices, distances)`, int64 arrays `(queries,)`: the index of the first of the nearest
        hashes and its distance; both are -1 if none is near enough.

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
    # Distance and index in one number, so that the minimum is the nearest.
    best = np.full(len(queries), none)
    for word, radius in enumerate(_radii(max_distance)):
        for pairs in _candidates(queries[:, word], hashes[:, word], radius):
            query, found, distances = _keep_near(*columns, *pairs, max_distance)
            np.minimum.at(best, query, distances.astype("int64") << 40 | first[found])
    best = best[inverse]
    is_found = best != none
    return np.where(is_found, best & (2**40 - 1), -1), np.where(is_found, best >> 40, -1)


def _distinct(hashes):
    """Return the distinct hashes, the first index of each, and the inverse indices."""
    rows = np.ascontiguousarray(hashes).view(np.dtype((np.void, 2 * WORDS))).ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return hashes[first], first, inverse


def _radii(max_distance):
    """Return how many bits of each word may differ, so that no hash within the distance is missed.

    If more bits differ in every word, more than `max_distance` differ in all. Words after those
    returned need not be looked up.
    """
    radius, rest = divmod(max_distance, WORDS)
    return [radius] * (rest + 1) + [radius - 1] * ((WORDS - rest - 1) if radius else 0)


def _candidates(queries, hashes, radius):
    """Yield indices of queries and hashes whose words differ in at most `radius` bits."""
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
        # If many hashes have the same word, the candidates do not fit into memory at once.
        cuts = np.searchsorted(ends, np.arange(0, counts.sum(), _CANDIDATES_AT_ONCE))
        for start, stop in itertools.pairwise([*cuts, len(used)]):
            part = slice(start, stop)
            places = np.arange(counts[part].sum())
            shifts = begins[part] - np.cumsum(counts[part]) + counts[part]
            found = order[places + np.repeat(shifts, counts[part])]
            yield first + np.repeat(used[part] // len(masks), counts[part]), found


def _columns(hashes):
    """Return the hashes as columns of 64 bits, which are compared at once."""
    padded = np.pad(hashes, ((0, 0), (0, -WORDS % 4)))
    return np.ascontiguousarray(padded.view("uint64").T)


def _keep_near(queries, hashes, query, found, max_distance):
    """Return the pairs of indices whose hashes are near, and their distances."""
    distances = np.zeros(len(query), "uint8")
    # Most pairs differ enough in the first 64 bits.
    for column, other in zip(queries, hashes, strict=True):
        distances = distances + np.bitwise_count(column[query] ^ other[found])
        near = distances <= max_distance
        query, found, distances = query[near], found[near], distances[near]
    return query, found, distances
