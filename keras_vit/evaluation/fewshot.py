"""Few-shot evaluation of frozen features."""

import logging
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.core.arguments import check_choice, is_integer, is_number
from keras_vit.core.text import mean_and_deviation
from keras_vit.data.sources.splits import split_names
from keras_vit.evaluation.classifiers import METHODS, check_sklearn
from keras_vit.evaluation.extraction import split_features

# As in `configs/common_fewshot.py` of big_vision.
SHOTS = (1, 5, 10, 25)
SEEDS = (0, 1, 2)
ALL = "all"


def evaluate_fewshot(
    model: keras.Model,
    name: str,
    train_split: str = "train",
    test_split: str = "test",
    shots: Sequence[int] | None = None,
    seeds: Sequence[int] = SEEDS,
    method: str = "least-squares",
    l2: float | None = None,
    **data: Any,
) -> dict[tuple[int, int], float]:
    """Return the accuracy of a model's frozen features with a few labelled images of each class.

    Args:
        model: a model of this package, with any head or none.
        name: name of a dataset, as in `keras_vit.data.load`.
        train_split: the split that the labelled images are chosen from.
        test_split: the split that is classified.
        shots: as in `fewshot_accuracies`, and so are `seeds`, `method` and `l2`.
        seeds: seeds of the choice.
        method: the classifier.
        l2: weight of the squared parameters.
        **data: `batch_size`, `cache`, `classes`, `data_dir`, `central_crop_from`, `max_skipped`,
            `upright` of `keras_vit.evaluation.extraction.split_features`.

    Returns:
        A dictionary from `(shots, seed)` to the accuracy on the whole test split.

    Raises:
        ValueError: if an argument is out of range, the splits overlap, or the dataset cannot be
            loaded.

    Example:
    >>> model = keras_vit.models.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=1, num_heads=2, mlp_dim=16, image_size=8
    ... )
    >>> accuracies = evaluate_fewshot(model, "digits", shots=(1, 5), seeds=(0,))
    >>> list(accuracies)
    [(1, 0), (5, 0)]
    """
    # Wrong settings are found before an hour of computing features.
    check_fewshot_settings(shots, seeds, method, l2)
    if set(split_names(train_split)) & set(split_names(test_split)):
        raise ValueError(
            "`train_split` and `test_split` must not overlap. "
            f"Received: train_split={train_split!r}, test_split={test_split!r}"
        )
    # The smaller split first: errors show sooner.
    *test, test_names = split_features(model, name, test_split, **data)
    *train, class_names = split_features(model, name, train_split, **data)
    if test_names != class_names:
        raise ValueError(
            "The splits must have the same classes. "
            f"Received: {len(class_names)} and {len(test_names)} classes, or different ones"
        )
    return fewshot_accuracies(*train, *test, len(class_names), shots, seeds, method, l2)


def fewshot_accuracies(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    num_classes: int,
    shots: Sequence[int] | None = None,
    seeds: Sequence[int] = SEEDS,
    method: str = "least-squares",
    l2: float | None = None,
) -> dict[tuple[int, int], float]:
    """Return the accuracy of classifiers that are fitted to a few examples of each class.

    `"least-squares"` is big_vision's: ridge regression in closed form from whitened features to -1
    and 1. `"knn"` is DINO's: votes of the 20 examples with the greatest cosine similarity, weighted
    with its exponential. `"linear-probe"` is CLIP's: logistic regression on standardized features,
    fitted with L-BFGS. The last two need scikit-learn.

    Args:
        train_features: array `(examples, width)`.
        train_labels: int array `(examples,)`.
        test_features: array `(tests, width)`.
        test_labels: int array `(tests,)`.
        num_classes: labels are less than this.
        shots: numbers of examples per class: positive integers, or `"all"`. More shots include the
            examples of fewer; a class that has fewer contributes all it has. By default
            `(1, 5, 10, 25)` for least squares, else `("all",)`.
        seeds: seeds of the random choice. With `"all"` nothing is chosen, and only the first seed
            is used.
        method: `"least-squares"`, `"knn"` or `"linear-probe"`.
        l2: for least squares the weight of the squared parameters relative to the sum of the
            squared errors, by default big_vision's 1024; for the linear probe the inverse of
            scikit-learn's `C`, by default 1. Not for `"knn"`.

    Returns:
        A dictionary from `(shots, seed)` to the accuracy on all tests.

    Raises:
        ValueError: if an argument is out of range, or scikit-learn is needed and not installed.

    Reference:
        big_vision's `evaluators/fewshot_lsr.py`; DINO (arXiv 2104.14294) and its `eval_knn.py`;
        CLIP (arXiv 2103.00020), appendix A.3.

    Example:
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(60) % 3
    >>> features = np.eye(3)[labels] + rng.normal(scale=0.1, size=(60, 3))
    >>> fewshot_accuracies(features[:30], labels[:30], features[30:], labels[30:], 3, shots=(1, 5))
    {(1, 0): 1.0, (5, 0): 1.0, (1, 1): 1.0, (5, 1): 1.0, (1, 2): 1.0, (5, 2): 1.0}
    """
    check_fewshot_settings(shots, seeds, method, l2)
    train = _check_examples("train", train_features, train_labels, num_classes)
    test = _check_examples("test", test_features, test_labels, num_classes)
    if train[0].shape[1] != test[0].shape[1]:
        raise ValueError(
            "Features for training and test must have the same width. "
            f"Received: {train[0].shape[1]} and {test[0].shape[1]}"
        )
    shots = (SHOTS if method == "least-squares" else (ALL,)) if shots is None else shots
    choices = all_choices(train[1], num_classes, shots, seeds)
    return accuracies_of(choices, train, test, num_classes, method, l2)


def all_choices(labels, num_classes, shots, seeds):
    """Return a dictionary from `(shots, seed)` to the indices of the chosen examples.

    A warning names the number of classes that have too few.
    """
    counts = np.bincount(labels, minlength=num_classes)
    wanted = max((count for count in shots if count != ALL), default=1)
    small = np.sum(counts < wanted)
    if small:
        logging.getLogger("keras_vit").warning(
            "%d of the %d classes have fewer than %d images for training, the smallest %d",
            *(small, num_classes, wanted, counts.min()),
        )
    return {
        (count, seed): choose_examples(labels, num_classes, count, seed)
        for seed in seeds
        for count in shots
        if count != ALL or seed == seeds[0]
    }


def accuracies_of(choices, train, test, num_classes, method="least-squares", l2=None):
    """Return the accuracy for each of the `all_choices`; `train` and `test` have two arrays."""
    predict, default_l2 = METHODS[method]
    l2 = default_l2 if l2 is None else l2
    accuracies = {}
    for key, chosen in choices.items():
        predicted = predict(train[0][chosen], train[1][chosen], test[0], num_classes, l2)
        accuracies[key] = float(np.mean(predicted == test[1]))
    return accuracies


def choose_examples(labels, num_classes, shots, seed):
    """Return the indices of randomly chosen examples of each class.

    They are those of big_vision's `evaluators/fewshot_lsr.py`, one class after the other. With the
    same seed, more shots include the examples of fewer.
    """
    rng = np.random.default_rng(seed)
    classes = [rng.permutation(np.flatnonzero(labels == label)) for label in range(num_classes)]
    return np.concatenate([members[: None if shots == ALL else shots] for members in classes])


def summary(accuracies):
    """Return a row of strings per number of shots: shots, mean and deviation, number of seeds."""
    rows = []
    for shots in dict.fromkeys(count for count, _ in accuracies):
        values = [value for (count, _), value in accuracies.items() if count == shots]
        rows.append((str(shots), mean_and_deviation(values, 4), str(len(values))))
    return rows


def check_fewshot_settings(shots, seeds, method, l2):
    """Raise `ValueError` unless the arguments of `fewshot_accuracies` can be used."""
    check_choice("method", method, tuple(METHODS))
    if shots is not None and not _are_all(shots, lambda n: n == ALL or (is_integer(n) and n > 0)):
        raise ValueError(
            f"`shots` must be positive integers or {ALL!r}, one or more. Received: shots={shots!r}"
        )
    if not _are_all(seeds, lambda seed: is_integer(seed) and seed >= 0):
        raise ValueError(
            f"`seeds` must be integers from 0 on, one or more. Received: seeds={seeds!r}"
        )
    if l2 is not None and (method == "knn" or not is_number(l2) or l2 <= 0):
        raise ValueError(
            "`l2` must be a positive number, for a method that has it. "
            f"Received: l2={l2!r}, method={method!r}"
        )
    if method != "least-squares":
        check_sklearn(method)


def _are_all(values, condition):
    is_sequence = isinstance(values, (tuple, list, range)) and len(values) > 0
    return is_sequence and all(condition(value) for value in values)


def _check_examples(kind, features, labels, num_classes):
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not labels.size:
        raise ValueError(
            f"`{kind}_features` must be `(examples, width)`, and `{kind}_labels` as many. "
            f"Received: shapes {features.shape} and {labels.shape}"
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"`{kind}_labels` must be integers from 0 to {num_classes - 1}. "
            f"Received: {labels.dtype} from {labels.min()} to {labels.max()}"
        )
    if not np.isfinite(features).all():
        # They would all be classified as class 0.
        count = np.sum(~np.isfinite(features).all(axis=1))
        raise ValueError(
            f"`{kind}_features` must be finite. Received: {count} examples that are not finite"
        )
    if kind == "train" and labels.min() == labels.max():
        raise ValueError(
            f"`train_labels` must have two classes or more. Received: class {labels[0]} alone"
        )
    return features, labels
