"""Multi-label classification: average precision, and one threshold per class."""

import numpy as np
import numpy.typing as npt

from keras_vit.core.arguments import is_number


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike) -> np.ndarray:
    """Return the average precision per class, as `sklearn.metrics.average_precision_score`.

    `labels` are zeros and ones of shape `(images, classes)`. `scores` are finite numbers of the
    same shape, such as logits. The result is float64. It is NaN for a class without images, for
    which scikit-learn returns 0.

    Example:
    >>> average_precision([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.3]])
    array([0.83..., nan])
    """
    precisions = []
    for hits, images, _ in _rankings(labels, scores):
        precision = np.sum(np.diff(hits, prepend=0) * (hits / images))
        precisions.append(precision / hits[-1] if hits[-1] else np.nan)
    return np.array(precisions)


def best_thresholds(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> tuple[float, ...]:
    """Return a tuple of one threshold per class, which has the highest F1 of the class.

    If several thresholds have the highest F1, the greatest is returned. A threshold is midway
    between two probabilities. It is 0.5 for a class without images.
    """
    thresholds = []
    for hits, images, levels in _rankings(labels, probabilities):
        best = np.argmax(hits / (images + hits[-1]))
        middle = np.append(levels, 0)[best : best + 2].mean() if hits[-1] else 0.5
        thresholds.append(float(np.clip(middle, 1e-7, 1 - 1e-7)))
    return tuple(thresholds)


def _rankings(labels, scores):
    """Yield per class the numbers of positives and images down to each score, and the scores."""
    labels, scores = np.asarray(labels, "float64"), np.asarray(scores, "float64")
    is_right = labels.ndim == 2 and labels.shape == scores.shape and labels.size
    if not is_right or not np.isin(labels, (0, 1)).all() or not np.isfinite(scores).all():
        raise ValueError(
            "`labels` must be zeros and ones, `scores` finite numbers, both (images, classes). "
            f"Received: shapes {labels.shape} and {scores.shape}, or other values"
        )
    for is_positive, score in zip(labels.T, scores.T, strict=True):
        order = np.argsort(-score)
        # Images with equal scores count together: keep the last image of each score.
        last = np.flatnonzero(np.diff(score[order], append=-np.inf))
        yield is_positive[order].cumsum()[last], last + 1, score[order][last]


def check_thresholds(thresholds, num_classes):
    """Return a tuple of thresholds, or raise an error unless each class has one in (0, 1)."""
    values = list(thresholds) if np.iterable(thresholds) else []
    if len(values) != num_classes or not all(is_number(x) and 0 < x < 1 for x in values):
        raise ValueError(
            f"`thresholds` must be {num_classes} numbers between 0 and 1, one for each class. "
            f"Received: thresholds={thresholds!r:.200}"
        )
    return tuple(map(float, values))
