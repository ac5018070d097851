"""Which examples make up the train, validation and test splits."""

import numpy as np

SPLITS = ("train", "validation", "test")

# Held out where a dataset comes without the split: PAPER's Pets and Flowers hold out 10 %.
_TEST_GIVEN = {"train": ("train", 0.0, 0.9), "validation": ("train", 0.9, 1.0)}
_NOTHING_GIVEN = {
    "train": ("train", 0.0, 0.7),
    "validation": ("train", 0.7, 0.8),
    "test": ("train", 0.8, 1.0),
}


def find_part(split, given):
    """Where the examples of a split come from.

    A dataset with all three splits is used as it is. Without `validation`, the last 10 % of its
    `train` are held out. With `validation` but without `test`, its `validation` is the test split,
    as ImageNet's is in the paper, and 10 % of `train` are held out. With `train` alone, that is
    divided 70 : 10 : 20.

    Args:
        split: `"train"`, `"validation"` or `"test"`.
        given: names of the splits that the dataset has.

    Returns:
        `(given split, start, stop)`, start and stop being fractions of the given split.

    Raises:
        ValueError: if the split is unknown or the dataset has no `train`.

    Example:
    >>> find_part("validation", given=["train", "test"])
    ('train', 0.9, 1.0)
    """
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {SPLITS}. Received: split={split!r}")
    if "train" not in given:
        raise ValueError(f"A dataset must have a split `train`. Received: splits {sorted(given)}")
    if "validation" in given and "test" in given:
        return split, 0.0, 1.0
    if "test" in given:
        return {**_TEST_GIVEN, "test": ("test", 0.0, 1.0)}[split]
    if "validation" in given:
        return {**_TEST_GIVEN, "test": ("validation", 0.0, 1.0)}[split]
    return _NOTHING_GIVEN[split]


def stratified_part(labels, start, stop, seed=0):
    """Indices of a fraction of the examples, the same fraction of every class.

    Args:
        labels: array of class indices.
        start: fraction at which the part starts.
        stop: fraction at which it stops.
        seed: of the shuffling; parts of one seed do not overlap.

    Returns:
        A sorted array of indices.
    """
    parts = []
    for label in np.unique(labels):
        members = np.random.default_rng(seed).permutation(np.flatnonzero(labels == label))
        first, last = round(start * len(members)), round(stop * len(members))
        parts.append(members[first:last])
    return np.sort(np.concatenate(parts))
