"""Activations in training: the same function and gradient in one pass."""

import numpy as np
import pytest

from keras_vit.layers.mlp import as_activation, fuse
from tests.fixtures.tiny import images

pytestmark = pytest.mark.backends("tensorflow", reason="the other backends fuse by themselves")
X = 4 * images(7, 5)
ACTIVATIONS = ("gelu_tanh", "gelu", "quick_gelu", "swish")


def with_gradient(function, x):
    import tensorflow as tf

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x, 2 * tf.ones_like(x))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_same_function_and_gradient(name):
    function = as_activation(name)
    exact = with_gradient(function, X.astype("float64"))
    for actual, expected in zip(with_gradient(fuse(function), X), exact, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=4e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_half_precision_is_rounded_once(name):
    import tensorflow as tf

    function, x = as_activation(name), tf.cast(X, "bfloat16")
    expected = with_gradient(function, tf.cast(x, "float32"))
    for actual, exact in zip(with_gradient(fuse(function), x), expected, strict=True):
        assert actual.dtype == "bfloat16"
        # Half a unit in the last of the 8 bits.
        np.testing.assert_allclose(tf.cast(actual, "float32"), exact, rtol=2**-8, atol=4e-6)
