"""Activation functions, and how the backends compute them at once."""

import functools

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_vit")
def gelu_tanh(x):
    """GELU in its tanh approximation, the default of `jax.nn.gelu`.

    Example:
    >>> float(gelu_tanh(np.float32(1.0))) - float(keras.activations.gelu(np.float32(1.0)))
    -0.00015...
    """
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable("keras_vit")
def quick_gelu(x):
    """GELU approximated as `x * sigmoid(1.702 x)`, used by OpenAI's CLIP.

    Example:
    >>> round(float(quick_gelu(np.float32(1.0))), 4)
    0.8458
    """
    return x * keras.ops.sigmoid(1.702 * x)


# Activations that Keras does not have under these names.
OWN_ACTIVATIONS = {"gelu_tanh": gelu_tanh, "quick_gelu": quick_gelu}


def as_activation(name, argument="activation"):
    """Return the activation function of a name."""
    if isinstance(name, str) and name in OWN_ACTIVATIONS:
        return OWN_ACTIVATIONS[name]
    try:
        return keras.activations.get(name)
    except ValueError as error:
        raise ValueError(
            f"`{argument}` must be a name of `keras.activations`, or one of "
            f"{', '.join(OWN_ACTIVATIONS)}. Received: {argument}={name!r}"
        ) from error


def check_activations(activation, classifier_activation):
    """Raise `ValueError` for unknown activations, or the head's given as that of the MLPs."""
    as_activation(activation)
    as_activation(classifier_activation, "classifier_activation")
    if activation == "softmax":
        raise ValueError(
            "`activation`, of the MLPs, must not be softmax: `classifier_activation` is that of "
            "the head. Received: activation='softmax'"
        )


def fuse(function):
    """Compile a function of a tensor into one pass, and its gradient into another.

    TensorFlow on CPUs fuses a GELU with the product before it, but not in training, which needs the
    GELU's inputs. In training, a GELU and its gradient are about twenty passes over the hidden
    layer, a tenth of a step's time. Compiled by XLA they are two. The other backends need none of
    this.

    The result is computed in float32, and has the dtype of its input.

    Args:
        function: an elementwise function of `keras.ops`.

    Example:
    >>> from keras_vit.layers.activations import fuse
    >>> float(fuse(keras.activations.gelu)(np.float32(0)))
    0.0
    """
    return _fuse_tensorflow(function) if keras.backend.backend() == "tensorflow" else function


# Cached: all layers share one compiled function.
@functools.cache
def _fuse_tensorflow(function):
    import tensorflow as tf

    def in_float32(x):
        return ops.cast(
            function(ops.cast(x, keras.backend.result_type(x.dtype, "float32"))), x.dtype
        )

    def gradient(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = in_float32(x)
        return tape.gradient(y, x, upstream)

    forward, backward = (
        tf.function(part, jit_compile=True, autograph=False) for part in (in_float32, gradient)
    )

    # TensorFlow keeps each custom gradient for good, and the graph that it is traced in. Here that
    # is a graph of `x` alone, shared by all models, instead of each model's graph of training.
    @functools.partial(tf.function, autograph=False)
    @tf.custom_gradient
    def fused(x):
        return forward(x), functools.partial(backward, x)

    return fused
