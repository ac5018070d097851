"""The digits of scikit-learn, all classes and some."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from keras_vit.data import load
from tests.fixtures.images import identify


def test_digits_are_scikit_learns():
    expected = np.round(load_digits().images * (255 / 16))[..., None].repeat(3, axis=-1)
    batches = load("digits", "train+validation+test", (8, 8), 100).as_numpy_iterator()
    ours = [(np.round(images * 127.5 + 127.5), labels) for images, labels in batches]
    np.testing.assert_array_equal(identify(ours), identify([(expected, load_digits().target)]))


@pytest.mark.slow
def test_classes():
    labels, some = (
        np.concatenate([labels for _, labels in load("digits", "test", 8, 64, classes=classes)])
        for classes in (None, ("7", "2"))
    )
    np.testing.assert_array_equal(some, labels[np.isin(labels, [2, 7])] == 7)
