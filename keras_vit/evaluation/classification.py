"""Accuracy on a labelled dataset."""

import keras
from keras import ops

from keras_vit.data.skipped import explaining_errors
from keras_vit.models.surgery import check_classifier


def evaluate(model, dataset):
    """Accuracy of a classifier on every image of a dataset.

    Args:
        model: a model that returns logits.
        dataset: batches of `(images, labels)`, a dataset of `keras_vit.data.load`.

    Returns:
        A dictionary: `images` (without those that were skipped), `loss`, `accuracy` (top-1) and,
        with more than five classes, `top_5_accuracy`. Where an image has several labels, as in
        ImageNet-ReaL: `images` and `accuracy`, the share whose prediction is among the labels.

    Raises:
        ValueError: if the model and the dataset have different classes, or the model does not
            return logits.
    """
    num_classes = check_classifier(model)
    if num_classes != len(dataset.class_names):
        raise ValueError(
            f"The dataset must have the model's {num_classes} classes. "
            f"Received: a dataset of {len(dataset.class_names)} classes"
        )
    _, labels = dataset.element_spec
    has_several_labels = labels.shape.rank == 2
    # A model of its own, so that the given one keeps its compilation.
    evaluated = keras.Model(model.input, model.output)
    if has_several_labels:
        metric = keras.metrics.MeanMetricWrapper(_is_among_labels, name="accuracy")
        evaluated.compile(metrics=[metric])
    else:
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        if num_classes > 5:
            metrics.append(keras.metrics.SparseTopKCategoricalAccuracy(5, name="top_5_accuracy"))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        evaluated.compile(loss=loss, metrics=metrics)
    with explaining_errors(dataset):
        results = evaluated.evaluate(dataset, return_dict=True)
    if has_several_labels:
        del results["loss"]
    return {"images": dataset.num_examples - len(dataset.skipped), **results}


def _is_among_labels(labels, logits):
    """1 where the predicted class is one of the image's labels, else 0."""
    predicted = ops.argmax(logits, axis=-1, keepdims=True)
    return ops.take_along_axis(ops.cast(labels > 0, "float32"), predicted, axis=-1)[..., 0]
