"""Elementwise functions compiled into one operation, where the backend would run several."""

import functools

import keras
from keras import ops


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
    >>> from keras_vit.layers.fusion import fuse
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

    @tf.custom_gradient
    def fused(x):
        return forward(x), functools.partial(backward, x)

    return fused
