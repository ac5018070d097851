"""Accuracy on a labelled dataset, also by several processes with a share of the images each."""

import dataclasses
import functools
import logging
import re
from typing import Any

import keras
import numpy as np
import scipy.special
import tqdm

from keras_vit.core.text import as_words
from keras_vit.data.dataset import Dataset
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.processes import process
from keras_vit.evaluation.metrics import LabelPredictions, expected_calibration_error
from keras_vit.models.inference import for_inference
from keras_vit.models.structure import check_classifier, has_zero_head, warn_of_zero_head


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
    >>> multi_label = Predictions(
    ...     class_names=("cat", "dog", "bird"),
    ...     predicted=np.array([0, 2]),
    ...     probabilities=np.array([0.9, 0.6]),
    ...     is_right=np.array([True, False]),
    ... )
    >>> multi_label.summary()
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
        dataset: a dataset of `keras_vit.data.load`, or its `info.dataset`.

    Returns:
        `Predictions`, an entry for each image, in the order of the dataset, and of the processes'
        indices. If images may have several labels, those without any are left out. A model with
        `thresholds` has `LabelPredictions` of all images instead.

    Raises:
        ValueError: if the model and the dataset have different numbers of classes, the model does
            not return logits or its logits are not finite, or the dataset is repeated.
    """
    num_classes, batches = check_classifier(model), as_batches(dataset)
    class_names, thresholds = batches.class_names, getattr(model, "thresholds", None)
    if num_classes != len(class_names):
        raise ValueError(
            f"The dataset must have the model's {num_classes} classes. "
            f"Received: a dataset of {len(class_names)} classes"
        )
    if has_zero_head(model):
        warn_of_zero_head(num_classes)
    judge = _judge if thresholds is None else _keep
    parts = [judge(logits, labels) for logits, labels in _logits_and_labels(model, batches)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if batches.info.dataset.shard == process():
        columns = gather(columns)
    if thresholds is not None:
        return LabelPredictions(class_names, thresholds, **columns)
    if is_wrong := np.isnan(columns["probabilities"]).sum():
        # Their predictions would be class 0.
        raise ValueError(
            "`model` must return finite logits. "
            f"Received: {is_wrong} of {len(columns['predicted'])} images without"
        )
    return Predictions(class_names, **columns)


def as_batches(dataset):
    """Return the batches of a dataset of `load`, of which `info.dataset` is enough.

    Raises:
        ValueError: if they have no end.
    """
    batches = dataset.batches() if isinstance(dataset, Dataset) else dataset
    if batches.info.dataset.repeat:
        raise ValueError(
            "The dataset must have an end, to count each image once. "
            "Received: a dataset of `load(..., repeat=True)`"
        )
    return batches


def check_same_classes(model_names, data_names, must_be_equal):
    """Check that a model and a dataset mean the same classes by the same numbers.

    All synsets of ImageNet mean the same as its words. Other projects may spell the names
    differently: unless they `must_be_equal`, a warning is logged if they differ.
    """
    model_names, data_names = as_words(model_names), as_words(data_names)
    pairs = zip(model_names, data_names, strict=False)
    different = [pair for pair in pairs if pair[0] != pair[1]]
    is_moved = any(name in data_names for name, _ in different)
    if len(model_names) != len(data_names) or is_moved or (must_be_equal and different):
        raise ValueError(
            f"The dataset must have the model's {len(model_names)} classes, "
            f"{model_names!r:.500}, in this order. "
            f"Received: {len(data_names)} classes, {data_names!r:.500}"
        )
    # Synsets have no other names to compare.
    if different and not all(re.fullmatch(r"n\d{8}", name) for name in data_names):
        logging.getLogger("keras_vit").warning(
            "classes of different names are compared by their order: %r is %r", *different[0]
        )


def logits_function(model):
    """Return a function from images to logits that a process can call by itself.

    Only the JAX backend has several processes. Each computes on its own device, so that batches
    need not have one size, and must have the whole model, as after `data_parallel` training and
    after loading.
    """
    if process()[1] == 1:
        return for_inference(model).predict_on_batch
    import jax

    # All processes must compute at once with an array that they share; this part of it is on a
    # device of this process.
    groups = model.trainable_variables, model.non_trainable_variables
    variables = [[variable.value.addressable_data(0) for variable in group] for group in groups]
    return functools.partial(jax.jit(stateless_outputs(model)), variables)


def stateless_outputs(model):
    """Return a function from the variables of a model, and images, to its outputs."""

    def outputs_of(variables, images):
        outputs, _ = model.stateless_call(*variables, images, training=False)
        return outputs

    return outputs_of


def gather(columns):
    """Concatenate the arrays of all processes in their order; each must call this function.

    `columns` is a dictionary of arrays of one length, which may differ between processes, with at
    most 32 bits per number.
    """
    if process()[1] == 1:
        return columns
    from jax.experimental.multihost_utils import process_allgather

    lengths = process_allgather(np.array(len(next(iter(columns.values())))))
    filled = {
        name: np.resize(column, (lengths.max(), *column.shape[1:]))
        for name, column in columns.items()
    }
    return {
        name: np.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)])
        for name, rows in process_allgather(filled).items()
    }


def _logits_and_labels(model, batches):
    """Yield the arrays of each batch; the first process shows a progress bar."""
    predict, size = logits_function(model), 0
    progress = tqdm.tqdm(
        batches.as_numpy_iterator(),
        "classified",
        int(batches.cardinality()),
        unit="batch",
        disable=process()[0] > 0,
    )
    with explaining_errors(batches):
        for images, labels in progress:
            # A smaller batch is filled up: JAX would compile again for it, and several devices
            # could not share it.
            size = max(size, len(images))
            logits = predict(np.resize(images, (size, *images.shape[1:])))
            yield np.asarray(logits, "float64")[: len(images)], labels


def _keep(logits, labels):
    """Return the columns of `LabelPredictions` for a batch."""
    return {"logits": logits.astype("float32"), "labels": labels > 0}


def _judge(logits, labels):
    """Return the columns of `Predictions` for a batch, in the types that `gather` keeps."""
    has_several = labels.ndim == 2
    if has_several:
        has_label = (labels > 0).any(axis=-1)
        logits, labels = logits[has_label], labels[has_label]
    # Stable: among equal logits the first counts as the greatest, as in `argmax`.
    five = np.argsort(-logits, axis=-1, kind="stable")[:, :5]
    is_own = np.take_along_axis(labels, five, -1) > 0 if has_several else five == labels[:, None]
    predicted, images = five[:, 0], np.arange(len(logits))
    log_probabilities = scipy.special.log_softmax(logits, axis=-1)
    columns = {
        "predicted": predicted.astype("int32"),
        "probabilities": np.exp(log_probabilities[images, predicted]).astype("float32"),
        "is_right": is_own[:, 0],
        "is_in_top_5": is_own.any(axis=-1),
    }
    if has_several:
        return columns
    losses = -log_probabilities[images, labels].astype("float32")
    return {**columns, "labels": labels.astype("int32"), "losses": losses}


def _mean(column):
    return float(np.mean(column, dtype="float64"))
