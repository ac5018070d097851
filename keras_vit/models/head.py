"""What the models end with."""

import keras


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
