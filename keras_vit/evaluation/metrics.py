"""Metrics of classification, of NumPy arrays with an entry for each image."""

import numpy as np

from keras_vit.core.arguments import check_integer


def confusion_matrix(labels, predicted, num_classes):
    """How many images of each class are taken for each class.

    Args:
        labels: integers `(images,)`, the class of each image.
        predicted: integers `(images,)`, the class that is predicted.
        num_classes: how many classes there are.

    Returns:
        An int64 array `(num_classes, num_classes)`: a row for each class, a column for each
        prediction.

    Raises:
        ValueError: if the arrays differ in length, or have anything but the numbers of classes, or
            `num_classes` is not a positive integer.

    Example:
    >>> confusion_matrix([0, 0, 1], [0, 1, 1], num_classes=2)
    array([[1, 1],
           [0, 1]])
    """
    labels, predicted = _check_classes(labels, predicted, num_classes)
    pairs = labels * num_classes + predicted
    counts = np.bincount(pairs, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def per_class_accuracy(labels, predicted, num_classes):
    """The share of each class's images whose class is predicted.

    Args:
        labels: as of `confusion_matrix`.
        predicted: as of `confusion_matrix`.
        num_classes: as of `confusion_matrix`.

    Returns:
        A float64 array `(num_classes,)` from 0 to 1, NaN where a class has no image.

    Raises:
        ValueError: as `confusion_matrix`.

    Example:
    >>> per_class_accuracy([0, 0, 1], [0, 1, 1], num_classes=3)
    array([0.5, 1. , nan])
    """
    labels, predicted = _check_classes(labels, predicted, num_classes)
    images = np.bincount(labels, minlength=num_classes)
    right = np.bincount(labels[labels == predicted], minlength=num_classes)
    return np.where(images > 0, right / np.maximum(images, 1), np.nan)


def most_frequent_mistakes(matrix):
    """What the images of each class are most often mistaken for.

    Args:
        matrix: of `confusion_matrix`.

    Returns:
        `(predicted, counts)`, integers `(num_classes,)`: the wrong class, of several the first, and
        how many images are taken for it; where that is 0, the class says nothing.

    Example:
    >>> most_frequent_mistakes(np.array([[1, 1], [0, 1]]))
    (array([1, 0]), array([1, 0]))
    """
    mistakes = np.array(matrix)
    np.fill_diagonal(mistakes, 0)
    return mistakes.argmax(axis=1), mistakes.max(axis=1)


def expected_calibration_error(probabilities, is_right, num_bins=15):
    """How far the probability of the predicted class is from the share of right predictions.

    Probabilities from 0 to 1 are cut into bins of equal width, of which each has its upper end. In
    a bin the mean probability and the share of right predictions differ; their differences are
    averaged over bins, weighted with the images in each.

    Args:
        probabilities: floats `(images,)` from 0 to 1, those of the predicted classes.
        is_right: booleans `(images,)`.
        num_bins: how many bins.

    Returns:
        A float from 0 to 1; NaN where a probability is.

    Raises:
        ValueError: if there is no image, the arrays differ in length, a probability is out of its
            range, or `num_bins` is not a positive integer.

    Reference:
        [On Calibration of Modern Neural Networks](https://arxiv.org/abs/1706.04599), section 2,
        equation 3; section 5 has 15 bins.

    Example:
    >>> expected_calibration_error([0.75, 0.75, 0.75, 0.75], [True, True, True, False])
    0.0
    """
    probabilities, is_right = np.asarray(probabilities, "float64"), np.asarray(is_right, bool)
    if probabilities.ndim != 1 or probabilities.shape != is_right.shape or not is_right.size:
        raise ValueError(
            "`probabilities` and `is_right` must have an entry for each image, and of one at "
            f"least. Received: shapes {probabilities.shape} and {is_right.shape}"
        )
    if np.any((probabilities < 0) | (probabilities > 1)):
        raise ValueError(
            "`probabilities` must be from 0 to 1. Received: probabilities from "
            f"{probabilities.min()} to {probabilities.max()}"
        )
    check_integer("num_bins", num_bins, 1)
    upper_ends = np.linspace(0, 1, num_bins + 1)[1:]
    # NaN is put behind the last bin, and makes the sum NaN there.
    bins = np.searchsorted(upper_ends, probabilities)
    # In a bin of n images, n times the difference of means is the difference of sums.
    differences = np.bincount(bins, weights=probabilities - is_right)
    return float(np.abs(differences).sum() / len(bins))


def _check_classes(labels, predicted, num_classes):
    check_integer("num_classes", num_classes, 1)
    arrays = {"labels": np.asarray(labels), "predicted": np.asarray(predicted)}
    shapes = [array.shape for array in arrays.values()]
    if shapes[0] != shapes[1] or len(shapes[0]) != 1:
        raise ValueError(
            "`labels` and `predicted` must have an entry for each image. "
            f"Received: shapes {shapes[0]} and {shapes[1]}"
        )
    for name, array in arrays.items():
        # NumPy makes floats of an empty list.
        if array.size and (
            array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= num_classes
        ):
            raise ValueError(
                f"`{name}` must be integers from 0 to {num_classes - 1}. "
                f"Received: {name} of {array.dtype} from {array.min()} to {array.max()}"
            )
    # Sums of uint64 and int64 would be floats.
    return (array.astype("int64") for array in arrays.values())
