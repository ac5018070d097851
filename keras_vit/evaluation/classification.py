"""Accuracy on a labelled dataset."""

import dataclasses
import logging
import sys
from typing import Any

import keras
import numpy as np
import tqdm

from keras_vit.data.processes import process
from keras_vit.data.skipped import explaining_errors
from keras_vit.evaluation.metrics import LabelPredictions, expected_calibration_error
from keras_vit.evaluation.processes import gather, logits_function
from keras_vit.models.parts import check_classifier


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The predictions of a model for each image of a dataset: arrays `(images,)`.

    `labels` and `losses` are `None` if images may have several labels.

    Args:
        class_names: names of the classes.
        predicted: int32, the class with the greatest logit.
        probabilities: float32, the softmax of that logit.
        is_right: whether `predicted` is the image's class, or one of several.
        labels: int32, the image's class.
        losses: float32, the cross-entropy.
        is_in_top_5: whether the image's class, or one of several, is among the five with the
            greatest logits; `None` if it was not computed.

    Example:
    >>> several_labels = Predictions(
    ...     class_names=("cat", "dog", "bird"),
    ...     predicted=np.array([0, 2]),
    ...     probabilities=np.array([0.9, 0.6]),
    ...     is_right=np.array([True, False]),
    ... )
    >>> several_labels.summary()
    {'images': 2, 'accuracy': 0.5}
    """

    class_names: tuple[str, ...]
    predicted: np.ndarray
    probabilities: np.ndarray
    is_right: np.ndarray
    labels: np.ndarray | None = None
    losses: np.ndarray | None = None
    is_in_top_5: np.ndarray | None = None

    def summary(self):
        """Return the metrics of all images, as `evaluate` does."""
        metrics = {"images": len(self.predicted)}
        if self.losses is not None:
            metrics["loss"] = _mean(self.losses)
        metrics["accuracy"] = _mean(self.is_right)
        if len(self.class_names) > 5 and self.is_in_top_5 is not None:
            metrics["top_5_accuracy"] = _mean(self.is_in_top_5)
        if self.labels is None:
            return metrics
        error = expected_calibration_error(self.probabilities, self.is_right)
        return {**metrics, "calibration_error": error}


def evaluate(model: keras.Model, dataset: Any) -> dict:
    """Return the accuracy and other metrics of a classifier on a dataset.

    Arguments and errors are those of `predictions`.

    Returns:
        A dictionary: `images` (without those that were skipped), `loss`, `accuracy` (top-1), with
        more than five classes `top_5_accuracy`, and `calibration_error` (see
        `keras_vit.evaluation.metrics.expected_calibration_error`). If images have several labels,
        as in ImageNet-ReaL: `images`, without those that have no label, `accuracy`, the share whose
        prediction is among the labels, and with more than five classes `top_5_accuracy`, the share
        with a label among the five greatest logits.
    """
    return predictions(model, dataset).summary()


def predictions(model: keras.Model, dataset: Any) -> Predictions:
    """Return the predictions of a classifier for a dataset, in one pass over it.

    A process among several that reads its share of the dataset, `load(..., shard=(index, count))`
    with its own index among all of them, gets the predictions of all shares. Each process must call
    this function.

    Args:
        model: a model that returns logits.
        dataset: batches of `(images, labels)`, a dataset of `keras_vit.data.load`.

    Returns:
        `Predictions`, an entry for each image, in the order of the dataset, and of the processes'
        indices. If images may have several labels, those without any are left out. A model with
        `thresholds` has `LabelPredictions` of all images instead.

    Raises:
        ValueError: if the model and the dataset have different numbers of classes, the model does
            not return logits or its logits are not finite, the dataset is repeated, or no image
            has a label.
    """
    num_classes = check_classifier(model)
    if not hasattr(dataset, "class_names"):
        raise ValueError(
            "`dataset` must be one of `keras_vit.data.load`; `model.evaluate` takes others. "
            f"Received: dataset={dataset!r:.80}"
        )
    check_ends(dataset)
    if num_classes != len(dataset.class_names):
        raise ValueError(
            f"The dataset must have the model's {num_classes} classes. "
            f"Received: a dataset of {len(dataset.class_names)} classes"
        )
    thresholds = getattr(model, "thresholds", None)
    if thresholds is not None and dataset.element_spec[1].shape.rank == 1:
        raise ValueError(
            "A model with `thresholds` needs images of several labels. Received: one label each"
        )
    judge = _judge if thresholds is None else _keep
    batches = [judge(logits, labels) for logits, labels in _logits_and_labels(model, dataset)]
    if not batches:
        raise ValueError("The dataset must have an image. Received: an empty one")
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    if tuple(dataset.shard) == process():
        columns = gather(columns)
    if not (len(columns["predicted"]) if thresholds is None else columns["labels"].any()):
        raise ValueError("The dataset must have an image with a label. Received: images without")
    _check_logits(columns.pop("is_finite"), columns.pop("is_flat"))
    if thresholds is not None:
        return LabelPredictions(tuple(dataset.class_names), thresholds, **columns)
    return Predictions(tuple(dataset.class_names), **columns)


def check_ends(dataset):
    """Raise `ValueError` for a dataset that is repeated without end."""
    # `tf.data.INFINITE_CARDINALITY`.
    if int(dataset.cardinality()) == -1:
        raise ValueError(
            "The dataset must have an end, to count each image once. "
            "Received: a dataset of `load(..., repeat=True)`"
        )


def _logits_and_labels(model, dataset):
    """Yield the arrays of each batch; the first process shows a progress bar."""
    predict, size = logits_function(model), 0
    progress = tqdm.tqdm(
        desc="classified",
        # It is negative if it is not known.
        total=max(int(dataset.cardinality()), 0) or None,
        unit="batch",
        # In a log file, each update is a line.
        mininterval=0.1 if sys.stderr.isatty() else 10,
        disable=process()[0] > 0,
    )
    with explaining_errors(dataset), progress:
        for images, labels in dataset.as_numpy_iterator():
            # A smaller batch is padded: JAX would compile again for it, and several devices could
            # not share it.
            size = max(size, len(images))
            padding = np.zeros((size - len(images), *images.shape[1:]), images.dtype)
            logits = predict(np.concatenate([images, padding]))
            yield np.asarray(logits, "float64")[: len(images)], labels
            progress.update()


def _keep(logits, labels):
    """Return the columns of `LabelPredictions` for a batch."""
    return {
        "is_finite": np.isfinite(logits).all(axis=-1),
        "is_flat": logits.min(axis=-1) == logits.max(axis=-1),
        "logits": logits.astype("float32"),
        "labels": labels > 0,
    }


def _judge(logits, labels):
    """Return the columns of `Predictions` for a batch, in the types that `gather` keeps."""
    if labels.ndim == 2:
        has_label = (labels > 0).any(axis=-1)
        logits, labels = logits[has_label], labels[has_label]
    is_finite = np.isfinite(logits).all(axis=-1)
    logits = np.where(is_finite[:, None], logits, 0)
    images = np.arange(len(logits))
    predicted = logits.argmax(axis=-1)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    columns = {
        "is_finite": is_finite,
        "is_flat": logits.min(axis=-1) == logits.max(axis=-1),
        "predicted": predicted.astype("int32"),
        "probabilities": np.exp(log_probabilities[images, predicted]).astype("float32"),
    }
    if labels.ndim == 2:
        # Stable: among equal logits the first counts as the greatest, as in `argmax`.
        five = np.argsort(-logits, axis=-1, kind="stable")[:, :5]
        is_in_top_5 = (np.take_along_axis(labels, five, axis=-1) > 0).any(axis=-1)
        return {
            **columns,
            "is_right": labels[images, predicted] > 0,
            "is_in_top_5": is_in_top_5,
        }
    own = logits[images, labels][:, None]
    # As above, the first among equal logits counts as the greatest.
    is_before = np.arange(logits.shape[-1]) < labels[:, None]
    num_greater = ((logits > own) | ((logits == own) & is_before)).sum(axis=-1)
    return {
        **columns,
        "is_right": predicted == labels,
        "labels": labels.astype("int32"),
        "losses": -log_probabilities[images, labels].astype("float32"),
        "is_in_top_5": num_greater < 5,
    }


def _check_logits(is_finite, is_flat):
    """Refuse logits that are not finite, and warn if no image has a greatest logit."""
    if not is_finite.all():
        raise ValueError(
            "`model` must give finite logits. "
            f"Received: {np.sum(~is_finite)} of {len(is_finite)} images without"
        )
    if is_flat.all():
        logging.getLogger("keras_vit").warning(
            "the logits of each image are all equal, as those of a new untrained head: "
            "class 0 is predicted for every image"
        )


def _mean(column):
    return float(np.mean(column, dtype="float64"))
