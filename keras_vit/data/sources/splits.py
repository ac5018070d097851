"""The splits train, validation and test, and how to divide a dataset that lacks some of them."""

SPLITS = ("train", "validation", "test")
# Names of each split in folders and TFRecord files; upper and lower case are equivalent.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid", "dev"),
    "test": ("test", "tests", "testing"),
}

# For datasets without a validation split: 10 % are held out, as from Pets and Flowers in the paper.
_LAST_TENTH_HELD_OUT = {"train": ("train", 0.0, 0.9), "validation": ("train", 0.9, 1.0)}
_ONLY_TRAIN = {
    "train": ("train", 0.0, 0.7),
    "validation": ("train", 0.7, 0.8),
    "test": ("train", 0.8, 1.0),
}


def split_names(split):
    """Return the names of splits that are joined with `+`.

    Example:
    >>> split_names("train+validation")
    ('train', 'validation')
    """
    names = tuple(str(split).split("+"))
    if not set(names) <= set(SPLITS) or len(set(names)) < len(names):
        raise ValueError(
            f"`split` must be one of {SPLITS}, or several joined with '+'. "
            f"Received: split={split!r}"
        )
    return names


def split_ranges(split, present):
    """Find where the examples of a split come from.

    A dataset with all three splits is not divided. If `validation` is missing, the last 10 % of
    `train` become the validation split. If only `test` is missing, `validation` becomes the test
    split, as for ImageNet in the paper, and the last 10 % of `train` the validation split. If the
    dataset has only `train`, it is divided 70 : 10 : 20.

    Args:
        split: as in `split_names`.
        present: names of the splits that the dataset has.

    Returns:
        A list of `(present split, start, stop)`; `start` and `stop` are fractions.

    Raises:
        ValueError: if the split is unknown or the dataset has no `train`.

    Example:
    >>> split_ranges("train+validation", present=["train", "test"])
    [('train', 0.0, 0.9), ('train', 0.9, 1.0)]
    """
    names = split_names(split)
    if "train" not in present:
        raise ValueError(f"A dataset must have a split `train`. Received: splits {sorted(present)}")
    if "validation" in present and "test" in present:
        parts = {name: (name, 0.0, 1.0) for name in SPLITS}
    elif "test" in present:
        parts = {**_LAST_TENTH_HELD_OUT, "test": ("test", 0.0, 1.0)}
    elif "validation" in present:
        parts = {**_LAST_TENTH_HELD_OUT, "test": ("validation", 0.0, 1.0)}
    else:
        parts = _ONLY_TRAIN
    return [parts[name] for name in names]


def describe_splits(present):
    """Describe in one line where the examples of each split come from.

    Args:
        present: dictionary from each split that the dataset has to a name for the description.

    Returns:
        A string.

    Example:
    >>> describe_splits({"train": "train/", "validation": "val/"})
    'train is 90% of train/, validation is 10% of train/, test is val/'
    """
    parts = [(name, *part) for name in SPLITS for part in split_ranges(name, present)]
    return ", ".join(
        f"{name} is {'' if stop - start == 1 else f'{stop - start:.0%} of '}{present[source]}"
        for name, source, start, stop in parts
    )
