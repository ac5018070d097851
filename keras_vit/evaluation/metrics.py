"""Metrics of classification, from NumPy arrays with an entry for each image."""

import dataclasses

import numpy as np
import numpy.typing as npt
import scipy.special

from keras_vit.core.arguments import check_integer
from keras_vit.core.several_labels import average_precision
from keras_vit.core.several_labels import best_thresholds as best_thresholds


@dataclasses.dataclass(frozen=True)
class LabelPredictions:
    """The logits of a model with thresholds, and the labels: arrays `(images, classes)`."""

    class_names: tuple[str, ...]
    thresholds: tuple[float, ...]
    logits: np.ndarray
    labels: np.ndarray

    def per_class(self):
        """Return images, average precision and F1 per class, NaN for classes without an image."""
        predicted = scipy.special.expit(self.logits) > np.array(self.thresholds, "float32")
        images, hits = self.labels.sum(axis=0), (predicted & self.labels).sum(axis=0)
        f1 = np.where(images > 0, 2 * hits / np.maximum(predicted.sum(axis=0) + images, 1), np.nan)
        return images, average_precision(self.labels, self.logits), f1

    def summary(self):
        """Return `images`, `mean_average_precision` and `f1`, means over classes with images."""
        precision, f1 = (float(np.nanmean(values)) for values in self.per_class()[1:])
        return {"images": len(self.labels), "mean_average_precision": precision, "f1": f1}


def confusion_matrix(
    labels: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int
) -> np.ndarray:
    """Count the images of each class by predicted class.

    Args:
        labels: integers `(images,)`, the class of each image.
        predicted: integers `(images,)`, the predicted class.
        num_classes: number of classes.

    Returns:
        An int64 array `(num_classes, num_classes)`: one row per class, one column per prediction.

    Raises:
        ValueError: if the arrays differ in length, have other values than classes, or
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


def per_class_accuracy(
    labels: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int
) -> np.ndarray:
    """Return the accuracy per class; arguments and errors are those of `confusion_matrix`.

    Returns:
        A float64 array `(num_classes,)` from 0 to 1, NaN where a class has no image.

    Example:
    >>> per_class_accuracy([0, 0, 1], [0, 1, 1], num_classes=3)
    array([0.5, 1. , nan])
    """
    labels, predicted = _check_classes(labels, predicted, num_classes)
    images = np.bincount(labels, minlength=num_classes)
    right = np.bincount(labels[labels == predicted], minlength=num_classes)
    return np.where(images > 0, right / np.maximum(images, 1), np.nan)


def most_frequent_mistakes(matrix):
    """Return the most frequent wrong prediction per class, and the number of its images.

    The first of several equal ones counts; where the number is 0, the prediction has no meaning.
    """
    mistakes = np.array(matrix)
    np.fill_diagonal(mistakes, 0)
    return mistakes.argmax(axis=1), mistakes.max(axis=1)


def expected_calibration_error(probabilities, is_right, num_bins=15):
    """Return the difference between confidence and accuracy, averaged over bins of confidence.

    The probabilities of the predicted classes are put into bins of equal width, which include their
    upper ends. The absolute difference between mean probability and accuracy of a bin is averaged
    over the bins, weighted by their numbers of images. If a probability is NaN, so is the average.

    Reference:
        [On Calibration of Modern Neural Networks](https://arxiv.org/abs/1706.04599), section 2,
        equation 3; section 5 has 15 bins.
    """
    probabilities, is_right = np.asarray(probabilities, "float64"), np.asarray(is_right, bool)
    if probabilities.ndim != 1 or probabilities.shape != is_right.shape or not is_right.size:
        raise ValueError(
            "`probabilities` and `is_right` must have an entry for each image, and at least one. "
            f"Received: shapes {probabilities.shape} and {is_right.shape}"
        )
    if np.any((probabilities < 0) | (probabilities > 1)):
        raise ValueError(
            "`probabilities` must be from 0 to 1. Received: probabilities from "
            f"{probabilities.min()} to {probabilities.max()}"
        )
    check_integer("num_bins", num_bins, 1)
    upper_ends = np.linspace(0, 1, num_bins + 1)[1:]
    # NaN is put after the last bin, where it makes the sum NaN.
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
