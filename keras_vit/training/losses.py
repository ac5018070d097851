"""The losses of the recipes."""

import keras
from keras import ops

from keras_vit.core.arguments import check_choice
from keras_vit.core.choices import TARGETS


@keras.saving.register_keras_serializable("keras_vit")
def sigmoid_cross_entropy(labels, logits):
    """Return the cross-entropy of one sigmoid per class, from soft labels `(batch, classes)`.

    The result is the sum over the classes, `(batch,)`; Keras's `BinaryCrossentropy` has the mean.

    Reference:
        `sigmoid_xent` in big_vision's `utils.py`.
    """
    labels = ops.cast(labels, logits.dtype)
    return ops.sum(ops.binary_crossentropy(labels, logits, from_logits=True), axis=-1)


def are_numbers(labels):
    """Whether the spec of labels is that of class numbers, `(batch,)`, and not of soft labels."""
    return len(labels.shape) == 1


def make_loss(recipe, labels):
    """Make the loss of a recipe for the spec of labels: `(batch,)`, or soft `(batch, classes)`."""
    if recipe.needs_soft_labels and are_numbers(labels):
        raise ValueError(
            "The labels must be soft labels (`load` with `one_hot=True`) for a sigmoid, "
            "`label_smoothing` and an `augmentation` that mixes images. "
            f"Received: labels of shape {tuple(labels.shape)}"
        )
    if recipe.loss == "sigmoid":
        return sigmoid_cross_entropy
    if are_numbers(labels):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=recipe.label_smoothing
    )


def masked_patch_loss(target="mean_colour"):
    """Make the loss of a masked patch predictor, a mean over corrupted patches.

    The sample weights of `keras_vit.data.mask_patches` select the corrupted patches.

    Reference:
        Section B.1.2 of the ViT paper (arXiv 2010.11929).
    """
    check_choice("target", target, TARGETS)
    if target == "pixels":
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
