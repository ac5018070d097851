"""An index that finds the hashes within a distance of others."""

import itertools

import numpy as np

from keras_vit.data.deduplication.hashes import WORDS

_QUERIES_AT_ONCE = 512
_CANDIDATES_AT_ONCE = 2**18


class HashIndex:
    """Tables of the words of hashes, which find all hashes within a distance of others.

    Two hashes that differ in few bits have a word that is equal or almost equal, so hashes are
    looked up by each of their words. The search is exact.

    Args:
        hashes: uint16 array `(hashes, WORDS)`.
        max_distance: greatest number of bits that may differ.

    Reference:
        Norouzi, Punjani, Fleet: Fast Search in Hamming Space with Multi-Index Hashing, CVPR 2012.

    Example:
    >>> index = HashIndex(np.array([[0] * 9, [7] * 9], "uint16"), max_distance=9)
    >>> queries = np.array([[1] * 9], "uint16")
    >>> next(pairs for pairs in index.within_distance(queries) if len(pairs[0]))
    (array([0]), array([0]), array([9], dtype=uint8))
    """

    # `faiss.IndexBinaryMultiHash` is as exact, but slower: on 2 cores, 10,000 random queries
    # take it 19 s among 260,000 hashes and 48 s among 1,300,000 (9 words of 16 bits, 2 flips);
    # 9 s and 83 s with 12 words of 12 bits and 1 flip. One core takes this index 1.2 s and 6 s.

    def __init__(self, hashes, max_distance):
        self.max_distance = max_distance
        self._columns = _columns(hashes)
        self._tables = [
            _Table(hashes[:, word], self._columns[0], radius)
            for word, radius in enumerate(_radii(max_distance))
        ]

    def within_distance(self, queries):
        """Find the hashes near some queries, a uint16 array `(queries, WORDS)`.

        Yields:
            `(query, hash, distance)`: arrays of the indices of pairs and of their distances. A
            pair comes once for each word by which it is found.
        """
        columns = _columns(queries)
        for word, table in enumerate(self._tables):
            for pairs in table.candidates(queries[:, word], columns[0], self.max_distance):
                yield _keep_near(columns, self._columns, *pairs, self.max_distance)

    def nearest(self, queries):
        """Find the nearest hash for each query, if one is near enough.

        Returns:
            `(indices, distances)`, int64 arrays `(queries,)`: the index of the first of the nearest
            hashes and its distance; both are -1 if none is near enough.
        """
        # Equal hashes are looked up once.
        rows = np.ascontiguousarray(queries).view(np.dtype((np.void, 2 * WORDS))).ravel()
        _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        none = np.iinfo("int64").max
        # Distance and index in one number, so that the minimum is the nearest.
        best = np.full(len(first), none)
        for query, found, distances in self.within_distance(queries[first]):
            np.minimum.at(best, query, distances.astype("int64") << 40 | found)
        best = best[inverse]
        is_found = best != none
        return np.where(is_found, best & (2**40 - 1), -1), np.where(is_found, best >> 40, -1)


def _radii(max_distance):
    """Return how many bits of each word may differ, so that no hash within the distance is missed.

    If more bits differ in every word, more than `max_distance` differ in all. Words after those
    returned need not be looked up.
    """
    radius, rest = divmod(max_distance, WORDS)
    return [radius] * (rest + 1) + [radius - 1] * ((WORDS - rest - 1) if radius else 0)


class _Table:
    """Hashes in the order of one of their words.

    Args:
        words: uint16 array, the word of each hash.
        column: uint64 array, the first 64 bits of each hash.
        radius: number of bits of the word that may differ.
    """

    def __init__(self, words, column, radius):
        self.order = np.argsort(words, kind="stable")
        self.starts = np.searchsorted(words[self.order], np.arange(2**16 + 1))
        # Hashes with equal words are read at once.
        self.column = column[self.order]
        every = np.arange(2**16, dtype="uint16")
        self.masks = every[np.bitwise_count(every) <= radius]

    def candidates(self, words, column, max_distance):
        """Yield indices of queries and hashes that differ little in the word and the column."""
        for first in range(0, len(words), _QUERIES_AT_ONCE):
            near = (words[first : first + _QUERIES_AT_ONCE, None] ^ self.masks).ravel()
            begins = self.starts[near]
            counts = self.starts[1:][near] - begins
            used = np.flatnonzero(counts)
            rows = first + used // len(self.masks), begins[used], counts[used]
            ends = np.cumsum(rows[2])
            # If many hashes have the same word, the candidates do not fit into memory at once.
            cuts = np.searchsorted(ends, np.arange(0, rows[2].sum(), _CANDIDATES_AT_ONCE))
            for start, stop in itertools.pairwise([*cuts, len(used)]):
                if start < stop:
                    part = (array[start:stop] for array in rows)
                    yield self._near(*part, column, max_distance)

    def _near(self, queries, begins, counts, column, max_distance):
        """Return the pairs of queries and of hashes in ranges of the table that are near."""
        ends = np.cumsum(counts)
        places = np.arange(ends[-1]) + np.repeat(begins - ends + counts, counts)
        differing = self.column[places] ^ np.repeat(column[queries], counts)
        # Most pairs differ enough in the first 64 bits.
        near = np.flatnonzero(np.bitwise_count(differing) <= max_distance)
        return queries[np.searchsorted(ends, near, side="right")], self.order[places[near]]


def _columns(hashes):
    """Return the hashes as columns of 64 bits, which are compared at once."""
    padded = np.pad(hashes, ((0, 0), (0, -WORDS % 4)))
    return np.ascontiguousarray(padded.view("uint64").T)


def _keep_near(queries, hashes, query, found, max_distance):
    """Return the pairs of indices whose hashes are near, and their distances."""
    distances = np.zeros(len(query), "uint8")
    for column, other in zip(queries, hashes, strict=True):
        distances = distances + np.bitwise_count(column[query] ^ other[found])
        near = distances <= max_distance
        query, found, distances = query[near], found[near], distances[near]
    return query, found, distances
