"""The classification head."""

import logging

import keras
from keras import ops


def zero_head(num_classes, activation=None):
    """Return the float32 linear classifier, zero at the start (section 3.2 of the paper)."""
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
    """Apply the hidden tanh layer of a pre-training head and the classifier, if there are any."""
    if representation_size is not None:
        outputs = keras.layers.Dense(
            representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            dtype=dtype,
            name="pre_logits",
        )(outputs)
    return zero_head(num_classes, classifier_activation)(outputs) if num_classes else outputs


def activation_name(activation):
    """Return the name of a head's activation, `None` for a head that returns logits."""
    # `keras.activations.serialize` would import TensorFlow on every backend.
    name = keras.activations.get(activation).__name__
    return None if name == "linear" else name


def has_zero_head(model):
    """Return whether the kernel of the head is zero: all images have the same logits."""
    return not bool(ops.any(model.get_layer("head").kernel.value))


def warn_of_zero_head(num_classes):
    """Log that a classifier is not trained."""
    logging.getLogger("keras_vit").warning(
        "all images have the same logits of the %d classes: the kernel of the model's head is "
        "zero, so it is not trained",
        num_classes,
    )
