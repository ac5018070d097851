"""An index that finds all hashes within a Hamming distance of a query."""

import itertools

import numpy as np

from keras_vit.data.deduplication.hashes import WORDS

_QUERIES_AT_ONCE = 512
_CANDIDATES_AT_ONCE = 2**18


class HashIndex:
    """Find all hashes within a Hamming distance of queries. The search is exact.

    A hash consists of 16-bit words. If two hashes differ in few bits, at least one word is equal or
    almost equal. So each word has a table of all hashes, in which hashes are looked up.

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

    # `faiss.IndexBinaryMultiHash` is also exact, but slower. For 10,000 random queries among
    # 260,000 (1,300,000) hashes, it takes 19 s (48 s) on 2 cores with 9 words of 16 bits and 2
    # flips, and 9 s (83 s) with 12 words of 12 bits and 1 flip. This index takes 1.2 s (6 s) on one
    # core.

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
            Arrays `(query, hash, distance)` of pairs: two indices and the Hamming distance. A pair
            comes once for each word in whose table it is found.
        """
        columns = _columns(queries)
        for word, table in enumerate(self._tables):
            for pairs in table.candidates(queries[:, word], columns[0], self.max_distance):
                yield _keep_near(columns, self._columns, *pairs, self.max_distance)

    def nearest(self, queries):
        """Find the nearest hash for each query, within `max_distance`.

        Returns:
            `(indices, distances)`, int64 arrays `(queries,)`: the index of the nearest hash (the
            lowest if several are equally near) and its distance, or -1 and -1 if no hash is near.
        """
        # Equal queries are looked up once.
        rows = np.ascontiguousarray(queries).view(np.dtype((np.void, 2 * WORDS))).ravel()
        _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        none = np.iinfo("int64").max
        # Distance and index are packed into one number, so that the minimum is the nearest hash.
        best = np.full(len(first), none)
        for query, match, distances in self.within_distance(queries[first]):
            np.minimum.at(best, query, distances.astype("int64") << 40 | match)
        best = best[inverse]
        is_found = best != none
        return np.where(is_found, best & (2**40 - 1), -1), np.where(is_found, best >> 40, -1)


def _radii(max_distance):
    """Return for each word how many bits may differ. The list may be shorter than `WORDS`.

    The remaining words are not searched. If more bits differ in each word of the list, more than
    `max_distance` bits differ in total. So no near hash is missed.
    """
    radius, rest = divmod(max_distance, WORDS)
    return [radius] * (rest + 1) + [radius - 1] * ((WORDS - rest - 1) if radius else 0)


class _Table:
    """The hashes, sorted by one of their words.

    Args:
        words: uint16 array with the word of each hash by which the hashes are sorted.
        first_bits: uint64 array with the first 64 bits of each hash.
        radius: number of bits of the word that may differ.
    """

    def __init__(self, words, first_bits, radius):
        self.order = np.argsort(words, kind="stable")
        self.starts = np.searchsorted(words[self.order], np.arange(2**16 + 1))
        # In this order, hashes with equal words are next to each other in memory.
        self.first_bits = first_bits[self.order]
        every = np.arange(2**16, dtype="uint16")
        self.masks = every[np.bitwise_count(every) <= radius]

    def candidates(self, words, first_bits, max_distance):
        """Yield indices of queries and hashes with few different bits in word and first bits."""
        for first in range(0, len(words), _QUERIES_AT_ONCE):
            near = (words[first : first + _QUERIES_AT_ONCE, None] ^ self.masks).ravel()
            begins = self.starts[near]
            counts = self.starts[1:][near] - begins
            used = np.flatnonzero(counts)
            rows = first + used // len(self.masks), begins[used], counts[used]
            ends = np.cumsum(rows[2])
            # If many hashes have the same word, all candidates may not fit into memory.
            cuts = np.searchsorted(ends, np.arange(0, rows[2].sum(), _CANDIDATES_AT_ONCE))
            for start, stop in itertools.pairwise([*cuts, len(used)]):
                if start < stop:
                    chunk = (array[start:stop] for array in rows)
                    yield self._near_pairs(*chunk, first_bits, max_distance)

    def _near_pairs(self, queries, begins, counts, first_bits, max_distance):
        """Compare queries with ranges of the table, and return pairs with near first bits."""
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1]) + np.repeat(begins - ends + counts, counts)
        differing = self.first_bits[rows] ^ np.repeat(first_bits[queries], counts)
        # The first 64 bits are enough to exclude most pairs.
        near = np.flatnonzero(np.bitwise_count(differing) <= max_distance)
        return queries[np.searchsorted(ends, near, side="right")], self.order[rows[near]]


def _columns(hashes):
    """Return hashes as columns of uint64, `(columns, hashes)`, to compare 64 bits at once."""
    padded = np.pad(hashes, ((0, 0), (0, -WORDS % 4)))
    return np.ascontiguousarray(padded.view("uint64").T)


def _keep_near(query_columns, hash_columns, query, match, max_distance):
    """Return the pairs of indices whose hashes are near, and their distances."""
    distances = np.zeros(len(query), "uint8")
    for query_column, hash_column in zip(query_columns, hash_columns, strict=True):
        distances = distances + np.bitwise_count(query_column[query] ^ hash_column[match])
        near = distances <= max_distance
        query, match, distances = query[near], match[near], distances[near]
    return query, match, distances
