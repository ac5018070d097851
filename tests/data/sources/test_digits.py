"""The digits of scikit-learn, all classes and some."""

import numpy as np
import pytest

from keras_vit.data import find_source, load
from keras_vit.data.sources.splits import SPLITS


def all_labels(dataset):
    return np.concatenate([labels for _, labels in dataset.as_numpy_iterator()])


def all_images(dataset):
    return np.concatenate([images for images, _ in dataset.as_numpy_iterator()])


@pytest.mark.slow
def test_digits():
    splits = {split: load("digits", split, (8, 8), 100) for split in SPLITS}
    assert sum(dataset.info.num_examples for dataset in splits.values()) == 1797
    for dataset in splits.values():
        images = all_images(dataset)
        assert images.shape == (dataset.info.num_examples, 8, 8, 3)
        assert images.min() == -1
        assert images.max() == 1
        assert set(all_labels(dataset)) == set(range(10))
        assert dataset.class_names == tuple("0123456789")
    everything = np.concatenate([all_images(dataset) for dataset in splits.values()])
    assert len(np.unique(everything, axis=0)) == 1797


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    expected = np.round(load_digits().images * (255 / 16))
    ours = all_images(load("digits", "train", (8, 8), 100))[..., 0] * 127.5 + 127.5
    known = {tuple(image.ravel()) for image in expected}
    assert all(tuple(np.round(image).ravel()) in known for image in ours)


@pytest.mark.slow
def test_classes():
    whole = load("digits", "test", (8, 8), 64)
    some = load("digits", "test", (8, 8), 64, classes=("7", "2"))
    labels = all_labels(whole)
    assert some.class_names == ("2", "7")
    assert some.info.num_examples == np.isin(labels, [2, 7]).sum()
    np.testing.assert_array_equal(all_labels(some), (labels[np.isin(labels, [2, 7])] == 7))


@pytest.mark.parametrize(
    ("classes", "message"),
    [(("1",), ".* at least two"), (("1", "1"), "differ by more than case"), ((), "be among")],
)
def test_two_classes_at_least_are_chosen(classes, message):
    with pytest.raises(ValueError, match=message):
        find_source("digits", "train", classes=classes)
