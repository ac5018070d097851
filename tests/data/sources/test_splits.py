"""Parts of a dataset: disjoint and complete."""

import numpy as np
import pytest

from keras_vit.data.sources.source import stratified_subset
from keras_vit.data.sources.splits import SPLITS, split_ranges


@pytest.mark.parametrize(
    "given", [["train"], ["train", "test"], ["train", "validation"], list(SPLITS)]
)
def test_splits_do_not_overlap(given):
    parts = [part for split in SPLITS for part in split_ranges(split, given)]
    for index, (source, start, stop) in enumerate(parts):
        assert source in given
        assert start < stop
        for other, other_start, other_stop in parts[:index]:
            assert source != other or start >= other_stop or stop <= other_start


def test_parts_cover_every_example_of_each_class_once():
    labels = np.repeat([0, 1, 2], [10, 1, 37])
    parts = [stratified_subset(labels, *ends) for ends in [(0, 0.7), (0.7, 0.8), (0.8, 1)]]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(48))
    np.testing.assert_array_equal(np.bincount(labels[parts[0]]), [7, 1, 26])
