"""Metrics of classification, computed from NumPy arrays with one entry per image, and reports."""

import csv
import dataclasses

import numpy as np
import numpy.typing as npt
import scipy.special

from keras_vit.core.files import csv_text, replacing
from keras_vit.core.multi_label import average_precision
from keras_vit.core.multi_label import best_thresholds as best_thresholds

# Columns of `class_rows`.
COLUMNS = ("class", "images", "accuracy", "most frequent mistake")


@dataclasses.dataclass(frozen=True)
class LabelPredictions:
    """Logits and labels, `(images, classes)`, for a multi-label model with class thresholds."""

    class_names: tuple[str, ...]
    thresholds: tuple[float, ...]
    logits: np.ndarray
    labels: np.ndarray

    def per_class(self):
        """Return the number of images, average precision and F1 per class (NaN without images)."""
        precision = average_precision(self.labels, self.logits)
        predicted = scipy.special.expit(self.logits) > np.array(self.thresholds, "float32")
        images, hits = self.labels.sum(axis=0), (predicted & self.labels).sum(axis=0)
        f1 = np.where(images > 0, 2 * hits / np.maximum(predicted.sum(axis=0) + images, 1), np.nan)
        return images, precision, f1

    def summary(self):
        """Return `images`, and the means of average precision and F1 over classes with images."""
        precision, f1 = (float(np.nanmean(values)) for values in self.per_class()[1:])
        return {"images": len(self.labels), "mean_average_precision": precision, "f1": f1}


def confusion_matrix(
    labels: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int
) -> np.ndarray:
    """Count the images of each class by their predicted class.

    Args:
        labels: integers `(images,)`, the class of each image.
        predicted: integers `(images,)`, the predicted class.
        num_classes: number of classes.

    Returns:
        An int64 array `(num_classes, num_classes)`: rows are labels, columns predicted classes.

    Raises:
        ValueError: if a value is not the number of a class.

    Example:
    >>> confusion_matrix([0, 0, 1], [0, 1, 1], num_classes=2)
    array([[1, 1],
           [0, 1]])
    """
    shape = (num_classes, num_classes)
    pairs = np.ravel_multi_index((labels, predicted), shape)
    return np.bincount(pairs, minlength=num_classes**2).reshape(shape)


def per_class_accuracy(
    labels: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int
) -> np.ndarray:
    """Return the accuracy per class; the arguments are as in `confusion_matrix`.

    Returns:
        A float64 array `(num_classes,)` from 0 to 1, with NaN for classes without images.

    Example:
    >>> per_class_accuracy([0, 0, 1], [0, 1, 1], num_classes=3)
    array([0.5, 1. , nan])
    """
    labels, predicted = np.asarray(labels), np.asarray(predicted)
    images = np.bincount(labels, minlength=num_classes)
    right = np.bincount(labels[labels == predicted], minlength=num_classes)
    return np.where(images > 0, right / np.maximum(images, 1), np.nan)


def expected_calibration_error(probabilities, is_right, num_bins=15):
    """Return the difference between confidence and accuracy, averaged over bins of confidence.

    The images are put into bins of equal width by the probability of the predicted class; a bin
    includes its upper end. For each bin, the absolute difference between mean probability and
    accuracy is computed. The result is the mean over the bins, weighted by their numbers of images,
    or NaN if a probability is NaN.

    Reference:
        [On Calibration of Modern Neural Networks](https://arxiv.org/abs/1706.04599), section 2,
        equation 3; section 5 uses 15 bins.
    """
    probabilities = np.asarray(probabilities, "float64")
    upper_ends = np.linspace(0, 1, num_bins + 1)[1:]
    # NaN goes into an extra bin after the last bin, and makes the sum NaN.
    bins = np.searchsorted(upper_ends, probabilities)
    # The difference of means in a bin, times the number of its images, is the difference of sums.
    differences = np.bincount(bins, weights=probabilities - np.asarray(is_right))
    return float(np.abs(differences).sum() / len(bins))


def class_rows(matrix, names):
    """Yield one tuple of strings per class of a confusion matrix, with the columns `COLUMNS`.

    Example:
    >>> list(class_rows(np.array([[1, 1], [0, 1]]), ["cat", "dog"]))
    [('cat', '2', '50.00%', 'dog (1)'), ('dog', '1', '100.00%', '-')]
    """
    for index, (name, row) in enumerate(zip(names, matrix, strict=True)):
        mistakes = np.where(np.arange(len(row)) == index, 0, row)
        mistake, images = mistakes.argmax(), row.sum()
        yield (
            name,
            f"{images}",
            f"{row[index] / images:.2%}" if images else "-",
            f"{names[mistake]} ({mistakes[mistake]})" if mistakes.any() else "-",
        )


def write_confusion(matrix, names, path):
    """Write a confusion matrix as CSV: one row per class, one column per predicted class."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = list(map(csv_text, names))
        writer.writerow(["class", *names])
        writer.writerows([name, *row] for name, row in zip(names, matrix.tolist(), strict=True))
