"""The losses of the recipes."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_vit")
def sigmoid_cross_entropy(labels, logits):
    """Whether each of the classes is there, as questions of their own.

    Args:
        labels: shares of classes, `(batch, classes)`.
        logits: `(batch, classes)`.

    Returns:
        The sum over the classes, `(batch,)`; Keras's `BinaryCrossentropy` is the mean.

    Reference:
        `sigmoid_xent` in big_vision's `utils.py`.
    """
    labels = ops.cast(labels, logits.dtype)
    return ops.sum(ops.binary_crossentropy(labels, logits, from_logits=True), axis=-1)


def make_loss(recipe, labels):
    """The loss of a recipe.

    Args:
        recipe: a `Recipe`.
        labels: spec of a dataset's labels, `(batch,)` or shares of classes, `(batch, classes)`.

    Returns:
        What `keras.Model.compile` takes as `loss`.

    Raises:
        ValueError: if the loss needs shares of classes and the labels are numbers.
    """
    is_number = len(labels.shape) == 1
    if recipe.wants_shares and is_number:
        raise ValueError(
            "The labels must be shares of classes (`load` with `one_hot=True`) for a sigmoid, "
            "`label_smoothing` and an `augmentation` that mixes images. "
            f"Received: labels of shape {tuple(labels.shape)}"
        )
    if recipe.loss == "sigmoid":
        return sigmoid_cross_entropy
    if is_number:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=recipe.label_smoothing
    )
