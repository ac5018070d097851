"""Accuracy on a labelled dataset."""

import keras

from keras_vit.data.datasets import naming_undecodable_files
from keras_vit.models.surgery import check_classifier


def evaluate(model, dataset):
    """Accuracy of a classifier on every image of a dataset.

    Args:
        model: a model that returns logits.
        dataset: batches of `(images, labels)`, a dataset of `keras_vit.data.load`.

    Returns:
        A dictionary: `images`, `loss`, `accuracy` (top-1) and, with more than five classes,
        `top_5_accuracy`.

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
    metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
    if num_classes > 5:
        metrics.append(keras.metrics.SparseTopKCategoricalAccuracy(5, name="top_5_accuracy"))
    # A model of its own, so that the given one keeps its compilation.
    evaluated = keras.Model(model.input, model.output)
    evaluated.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=metrics
    )
    with naming_undecodable_files(dataset):
        results = evaluated.evaluate(dataset, return_dict=True)
    return {"images": dataset.num_examples, **results}
