"""Padding of masks; that of labels is an example of `pad`."""

import numpy as np
import pytest

from keras_vit.data import load
from keras_vit.data.processes import pad
from tests.fixtures.masks import write_masks


@pytest.mark.slow
def test_each_pixel_of_a_mask_has_a_weight(tmp_path):
    """Six images in batches of four, then a batch that is empty."""
    dataset = load(f"masks:{write_masks(tmp_path)}", "test", 8, batch_size=4)
    batches = list(pad(dataset, 4, 3, weight=0.5).as_numpy_iterator())
    assert [weights.shape for _, _, weights in batches] == [(4, 8, 8)] * 3
    assert [masks.shape for _, masks, _ in batches] == [(4, 8, 8)] * 3
    per_image = np.concatenate([weights.mean(axis=(1, 2)) for _, _, weights in batches])
    assert per_image.tolist() == [0.5] * 6 + [0.0] * 6
