"""The MLP of a Transformer block, and activation functions."""

import functools
from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import check_rate
from keras_vit.layers.layer import Dropout, Layer, as_rows


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


def as_activation(name):
    """Return the activation function with a name, of this module or of Keras."""
    own = {"gelu_tanh": gelu_tanh, "quick_gelu": quick_gelu}
    return own[name] if isinstance(name, str) and name in own else keras.activations.get(name)


@keras.saving.register_keras_serializable("keras_vit")
class MlpBlock(Layer):
    """Two dense layers with an activation between them, or a gated linear unit.

    Input and output: `(batch, tokens, width)`.

    Args:
        mlp_dim: width of the hidden layer.
        activation: `"gelu_tanh"` (the original's), `"gelu"` (erf; weights trained in PyTorch), or
            another name that `keras.activations.get` accepts.
        dropout: dropout rate after each of the two layers.
        gated: whether the first layer's output is multiplied with an activated projection of the
            tokens, `gate`, instead of being activated itself; with `"silu"` this is SwiGLU. If
            gated, the two layers are named `up` and `down`, otherwise `dense_0` and `dense_1`.
        lora: see `TransformerBlock`.

    Call arguments:
        tokens: the token sequence.
        training: whether to apply dropout.
        seeds: pair of dropout seeds, one for each layer; `None` to draw seeds in the call.

    Raises:
        ValueError: if `activation` is unknown, or `dropout` is not a rate.

    Reference:
        Appendix A of the ViT paper (arXiv 2010.11929); initializers of `vit_jax/models_vit.py`.
        SwiGLU: "GLU Variants Improve Transformer" (arXiv 2002.05202).

    Example:
    >>> tuple(MlpBlock(mlp_dim=32)(np.ones((2, 5, 8))).shape)
    (2, 5, 8)
    """

    def __init__(
        self,
        mlp_dim: int,
        activation: str = "gelu_tanh",
        dropout: float = 0.0,
        gated: bool = False,
        lora: dict | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_rate("dropout", dropout)
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.dropout = dropout
        self.gated = gated
        self.lora = lora
        self.activation_function = as_activation(activation)
        if gated:
            self.gate = self._dense("gate", mlp_dim)
        self.dense_0 = self._dense("up" if gated else "dense_0", mlp_dim)
        self.dropout_layer = Dropout(dropout, name="dropout", **self.sublayer_options())

    def _dense(self, name, units):
        bias_initializer = keras.initializers.RandomNormal(stddev=1e-6)
        return self.dense(name, units, bias_initializer=bias_initializer)

    def build(self, input_shape):
        width = input_shape[-1]
        self.dense_1 = self._dense("down" if self.gated else "dense_1", width)
        if self.gated:
            self.gate.build((None, width))
        self.dense_0.build((None, width))
        self.dense_1.build((None, self.mlp_dim))

    # The default of `seeds` is not `(None, None)`: Keras 3.12 looks for shapes in nested defaults.
    def call(self, tokens, training=None, seeds=None):
        first, second = (None, None) if seeds is None else seeds
        rows = as_rows(tokens)
        activate = fuse(self.activation_function) if training else self.activation_function
        hidden = self.dense_0(rows)
        gate = self.gate(rows) if self.gated else None
        # TensorFlow fuses a GELU with a product only if the GELU's name sorts after the product's.
        with keras.name_scope("hidden"):
            hidden = activate(gate) * hidden if self.gated else activate(hidden)
        hidden = self.dropout_layer(hidden, training=training, seed=first)
        rows = self.dropout_layer(self.dense_1(hidden), training=training, seed=second)
        return ops.reshape(rows, (-1, *ops.shape(tokens)[1:]))

    def compute_output_shape(self, input_shape):
        return input_shape


def fuse(function):
    """Compile an elementwise function, so that it and its gradient take one pass each.

    Only TensorFlow needs this. On CPUs it fuses a GELU with the product before it, but not in
    training, where the gradient needs the GELU's input. In training, a GELU and its gradient then
    take about twenty passes over the hidden layer, a tenth of a step's time. Compiled by XLA, they
    take two passes.

    The result is computed in float32, and has the dtype of the input.

    Args:
        function: an elementwise function of `keras.ops`.

    Example:
    >>> from keras_vit.layers.mlp import fuse
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

    # TensorFlow never frees a custom gradient, nor the graph in which it is traced. With this
    # `tf.function`, it is a small graph that all models share. Without the function, the training
    # graph of every model would stay in memory.
    @functools.partial(tf.function, autograph=False)
    @tf.custom_gradient
    def fused(x):
        return forward(x), functools.partial(backward, x)

    return fused
