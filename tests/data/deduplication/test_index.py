"""Nearest hashes: what an index finds."""

import numpy as np
import pytest

from keras_vit.data.deduplication.copies import MAX_DISTANCE
from keras_vit.data.deduplication.hashes import WORDS
from keras_vit.data.deduplication.index import HashIndex


def near_zero(count, rng):
    bits = rng.random((count, 16 * WORDS)) < 0.05
    return np.packbits(bits, axis=1).view("uint16")


@pytest.mark.parametrize("max_distance", [0, 3, 8, 9, 22, 35])
@pytest.mark.parametrize("kind", ["random", "skewed"])
def test_index_finds_what_comparing_all_finds(kind, max_distance):
    rng = np.random.default_rng(0)
    if kind == "random":
        hashes = rng.integers(0, 2**16, (700, WORDS), "uint16")
        queries = hashes[rng.integers(0, 700, 300)] ^ near_zero(300, rng)
    else:
        hashes, queries = near_zero(700, rng), near_zero(300, rng)
    distances = np.bitwise_count(queries[:, None] ^ hashes).sum(axis=-1, dtype=int)
    found = distances.min(axis=1) <= max_distance
    indices, nearest = HashIndex(hashes, max_distance).nearest(queries)
    np.testing.assert_array_equal(indices, np.where(found, distances.argmin(axis=1), -1))
    np.testing.assert_array_equal(nearest, np.where(found, distances.min(axis=1), -1))


def test_many_equal_hashes_are_looked_up_once():
    equal = np.full((100_000, WORDS), 5, "uint16")
    indices, distances = HashIndex(equal, MAX_DISTANCE).nearest(equal)
    assert not indices.any()
    assert not distances.any()


def test_no_hashes_are_no_error():
    none, some = np.zeros((0, WORDS), "uint16"), np.ones((3, WORDS), "uint16")
    assert HashIndex(some, MAX_DISTANCE).nearest(none)[0].tolist() == []
    assert HashIndex(none, MAX_DISTANCE).nearest(some)[0].tolist() == [-1, -1, -1]
