"""What the models end with."""

import logging

import keras
from keras import ops


def zero_head(num_classes, activation=None):
    """The linear classifier, zero at the start (section 3.2 of the paper) and always float32."""
    return keras.layers.Dense(
        num_classes,
        activation=activation,
        kernel_initializer="zeros",
        dtype="float32",
        name="head",
    )


def classification_head(
    outputs, num_classes, representation_size=None, classifier_activation=None, dtype=None
):
    """The hidden tanh layer of a pre-training head and the classifier, either only if asked for."""
    if representation_size is not None:
        outputs = keras.layers.Dense(
            representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            dtype=dtype,
            name="pre_logits",
        )(outputs)
    return zero_head(num_classes, classifier_activation)(outputs) if num_classes else outputs


def has_zero_head(model):
    """Whether the kernel of a classifier's head is zero: all images have the same logits."""
    return not bool(ops.any(model.get_layer("head").kernel.value))


def warn_of_zero_head(num_classes):
    """Log that a classifier is not trained."""
    logging.getLogger("keras_vit").warning(
        "all images have the same logits of the %d classes: the kernel of the model's head is "
        "zero, so it is not trained",
        num_classes,
    )
