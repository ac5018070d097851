"""Activations in training: the same function and gradient in one pass."""

import keras
import numpy as np
import pytest

from keras_vit.layers.mlp import MlpBlock, as_activation, fuse
from tests.fixtures.tiny import images

X = 4 * images(7, 5)
ACTIVATIONS = ("gelu_tanh", "gelu", "quick_gelu", "swish")


def with_gradient(function, x):
    import tensorflow as tf

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x, 2 * tf.ones_like(x))


@pytest.mark.backends("tensorflow", reason="the other backends fuse by themselves")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_same_function_and_gradient(name):
    function = as_activation(name)
    exact = with_gradient(function, X.astype("float64"))
    for actual, expected in zip(with_gradient(fuse(function), X), exact, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=4e-6)


@pytest.mark.backends("tensorflow", reason="the other backends fuse by themselves")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_half_precision_is_rounded_once(name):
    import tensorflow as tf

    function, x = as_activation(name), tf.cast(X, "bfloat16")
    expected = with_gradient(function, tf.cast(x, "float32"))
    for actual, exact in zip(with_gradient(fuse(function), x), expected, strict=True):
        assert actual.dtype == "bfloat16"
        # Half a unit in the last of the 8 bits.
        np.testing.assert_allclose(tf.cast(actual, "float32"), exact, rtol=2**-8, atol=4e-6)


@pytest.mark.backends("tensorflow", reason="it reads a graph of TensorFlow")
def test_only_training_is_fused():
    import tensorflow as tf

    block = MlpBlock(8)
    block.build((None, 5, 4))
    for training in (True, False):
        function = tf.function(lambda x, training=training: block(x, training=training))
        graph = function.get_concrete_function(tf.TensorSpec((None, 5, 4))).graph.as_graph_def()
        calls = [f for f in graph.library.function if f.attr["_XlaMustCompile"].b]
        assert bool(calls) == training


@pytest.mark.backends("tensorflow", reason="it optimizes graphs")
def test_a_product_and_its_gelu_are_one_operation():
    """Bit for bit those of a Dense layer with the activation, which TensorFlow fuses."""
    import tensorflow as tf

    tokens, rows = keras.Input((5, 8)), keras.Input((8,))
    ours = keras.Model(tokens, MlpBlock(16)(tokens))
    hidden = keras.layers.Dense(16, activation=as_activation("gelu_tanh"))(rows)
    fused = keras.Model(rows, keras.layers.Dense(8)(hidden))
    fused.set_weights(ours.get_weights())
    x = images(2, 5, 8)
    # The other tests run faster without.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    outputs = ours.predict_on_batch(x), fused.predict_on_batch(x.reshape(10, 8))
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    np.testing.assert_array_equal(outputs[0].reshape(10, 8), outputs[1])


@pytest.mark.backends("jax", "torch", reason="TensorFlow has another form")
def test_the_other_backends_keep_the_function():
    assert fuse(keras.activations.gelu) is keras.activations.gelu
