"""Predictions and accuracy on a labelled dataset, by one process or by several JAX processes."""

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
from keras_vit.models.structure import (
    check_classifier,
    has_zero_head,
    predicts_values,
    warn_of_zero_head,
)
from keras_vit.models.unused_tokens import without_unused_tokens


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The predictions of a model for each image of a dataset: arrays `(images,)`.

    For a multi-label dataset, `labels` and `losses` are `None`.

    Args:
        class_names: names of the classes.
        predicted: int32, the class with the greatest logit.
        probabilities: float32, the softmax of the greatest logit.
        is_right: whether `predicted` is the label of the image, or one of its labels.
        labels: int32, the label of the image.
        losses: float32, the cross-entropy.
        is_in_top_5: whether a label of the image is among the five classes with the greatest
            logits; `None` if not computed.

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
        """Return the metrics over all images, as `evaluate` does."""
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


@dataclasses.dataclass(frozen=True)
class ValuePredictions:
    """Predicted values and targets, float32 `(images, values)`, and the names of the values."""

    class_names: tuple[str, ...]
    predicted: np.ndarray
    targets: np.ndarray

    def per_value(self):
        """Return a dictionary of metrics `(values,)`, equal to those of scikit-learn."""
        targets = self.targets.astype("float64")
        errors = self.predicted - targets
        squares, total = (errors**2).mean(axis=0), targets.var(axis=0)
        # For equal targets, R2 is 1 if all predictions are right, and otherwise 0.
        r2 = np.where(total > 0, 1 - squares / np.where(total > 0, total, 1), squares == 0)
        absolute = np.abs(errors).mean(axis=0)
        return {"r2": r2, "mean_absolute_error": absolute, "mean_squared_error": squares}

    def summary(self):
        """Return `images`, and the means of the metrics; of several values, also each metric."""
        metrics, summary = self.per_value(), {"images": len(self.targets)}
        summary |= {metric: float(values.mean()) for metric, values in metrics.items()}
        for index, name in enumerate(self.class_names if len(self.class_names) > 1 else ()):
            for metric, values in metrics.items():
                summary[f"{metric} of {name}"] = float(values[index])
        return summary


def evaluate(model: keras.Model, dataset: Any) -> dict:
    """Return the accuracy and other metrics of a classifier on a dataset.

    Arguments and errors are as in `predictions`.

    Returns:
        A dictionary: `images` (number of images that were not skipped), `loss`, `accuracy` (top-1),
        `top_5_accuracy` if there are more than five classes, and `calibration_error` (see
        `keras_vit.evaluation.metrics.expected_calibration_error`). For a multi-label dataset, such
        as ImageNet-ReaL, only images with labels count: `images`; `accuracy`, the share of images
        whose predicted class is among the labels; and, if there are more than five classes,
        `top_5_accuracy`, the share of images with a label among the five classes with the greatest
        logits. For a model that predicts values: `images`, `r2`, `mean_absolute_error` and
        `mean_squared_error`, as in scikit-learn, and for several values also `r2 of NAME` etc.
    """
    return predictions(model, dataset).summary()


def predictions(model: keras.Model, dataset: Any) -> Predictions:
    """Return the predictions of a classifier for a dataset, in one pass.

    Several processes can each read a share of the dataset: `load(..., shard=(index, count))` with
    the index of the process. Then all processes must call this function, and each process gets the
    predictions for all shares.

    Args:
        model: a model that returns logits.
        dataset: a dataset of `keras_vit.data.load`, or its `info.dataset`.

    Returns:
        `Predictions` with one entry per image in the order of the dataset. With several processes,
        the share of the first process comes first. Images of a multi-label dataset that have no
        label are left out. For a model with `thresholds`, `LabelPredictions` of all images; for a
        model that predicts values, `ValuePredictions`.

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
    has_values = batches.info.dataset.source.has_values
    if has_values != predicts_values(model):
        raise ValueError(
            "A model that predicts values must be given for a dataset of values, and only for one. "
            f"Received: a model of {'classes' if has_values else 'values'}, and images with "
            f"{'values' if has_values else 'labels'}"
        )
    if has_values and tuple(model.class_names or class_names) != tuple(class_names):
        raise ValueError(
            f"The dataset must have the model's values, {model.class_names}, in this order. "
            f"Received: a dataset with {class_names}"
        )
    if has_zero_head(model):
        warn_of_zero_head(num_classes)
    columns_of = _prediction_columns if thresholds is None else _logits_columns
    columns_of = _value_columns if has_values else columns_of
    parts = [columns_of(logits, labels) for logits, labels in _logits_and_labels(model, batches)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if batches.info.dataset.shard == process():
        columns = gather(columns)
    if has_values:
        return ValuePredictions(class_names, **columns)
    if thresholds is not None:
        return LabelPredictions(class_names, thresholds, **columns)
    if is_wrong := np.isnan(columns["probabilities"]).sum():
        # Without this error, such images would be predicted as class 0.
        raise ValueError(
            "`model` must return finite logits. "
            f"Received: NaN or infinity for {is_wrong} of {len(columns['predicted'])} images"
        )
    return Predictions(class_names, **columns)


def as_batches(dataset):
    """Return the batches of a dataset from `load`, which may be given as its `info.dataset`.

    Raises:
        ValueError: if the dataset is repeated.
    """
    batches = dataset.batches() if isinstance(dataset, Dataset) else dataset
    if batches.info.dataset.repeat:
        raise ValueError(
            "The dataset must have an end, so that each image is counted once. "
            "Received: a dataset of `load(..., repeat=True)`"
        )
    return batches


def check_same_classes(model_names, data_names, must_be_equal):
    """Raise `ValueError` unless a model and a dataset have the same classes in the same order.

    Synsets of ImageNet are compared by their names. Other projects may spell names differently:
    unless `must_be_equal`, a warning is logged if names differ.
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
    # If the dataset has synsets, names cannot be compared.
    if different and not all(re.fullmatch(r"n\d{8}", name) for name in data_names):
        logging.getLogger("keras_vit").warning(
            "names of classes differ; classes are matched by their order: %r is %r", *different[0]
        )


def logits_function(model):
    """Return a function from images to logits that each process can call independently.

    Only the JAX backend has several processes. Each process uses one of its devices, so batches of
    different processes may have different sizes. Each process must have the whole model, as after
    loading or after `data_parallel` training.
    """
    if process()[1] == 1:
        return for_inference(model).predict_on_batch
    import jax

    model = without_unused_tokens(model)
    # With arrays of all processes, these would have to compute at the same time. Take the copies on
    # a device of this process.
    groups = model.trainable_variables, model.non_trainable_variables
    variables = [[variable.value.addressable_data(0) for variable in group] for group in groups]
    return functools.partial(jax.jit(stateless_outputs(model)), variables)


def stateless_outputs(model):
    """Return a function from the variables of a model and images to the outputs of the model."""

    def outputs_of(variables, images):
        outputs, _ = model.stateless_call(*variables, images, training=False)
        return outputs

    return outputs_of


def gather(columns):
    """Concatenate the arrays of all processes, in the order of the processes, which must all call.

    `columns` is a dictionary of arrays of equal length, with at most 32 bits per number. The length
    may differ between processes.
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
    """Yield the logits and labels of each batch; the first process shows a progress bar."""
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
            # Fill up smaller batches: otherwise JAX would compile again, and several devices could
            # perhaps not divide the batch.
            size = max(size, len(images))
            logits = predict(np.resize(images, (size, *images.shape[1:])))
            yield np.asarray(logits, "float64")[: len(images)], labels


def _logits_columns(logits, labels):
    """Return the columns of `LabelPredictions` for a batch."""
    return {"logits": logits.astype("float32"), "labels": labels > 0}


def _value_columns(values, labels):
    """Return the columns of `ValuePredictions` for a batch."""
    return {"predicted": values.astype("float32"), "targets": labels}


def _prediction_columns(logits, labels):
    """Return the columns of `Predictions` for a batch, in types that `gather` supports."""
    is_multi_label = labels.ndim == 2
    if is_multi_label:
        has_label = (labels > 0).any(axis=-1)
        logits, labels = logits[has_label], labels[has_label]
    # If logits are equal, a stable sort puts the first class first, as `argmax` does.
    top_5 = np.argsort(-logits, axis=-1, kind="stable")[:, :5]
    hits = np.take_along_axis(labels, top_5, -1) > 0 if is_multi_label else top_5 == labels[:, None]
    predicted, images = top_5[:, 0], np.arange(len(logits))
    log_probabilities = scipy.special.log_softmax(logits, axis=-1)
    columns = {
        "predicted": predicted.astype("int32"),
        "probabilities": np.exp(log_probabilities[images, predicted]).astype("float32"),
        "is_right": hits[:, 0],
        "is_in_top_5": hits.any(axis=-1),
    }
    if is_multi_label:
        return columns
    losses = -log_probabilities[images, labels].astype("float32")
    return {**columns, "labels": labels.astype("int32"), "losses": losses}


def _mean(column):
    return float(np.mean(column, dtype="float64"))
