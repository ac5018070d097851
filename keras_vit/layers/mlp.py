"""The feed-forward part of a Transformer block."""

from typing import Any

import keras

from keras_vit.core.arguments import check_rate
from keras_vit.layers.activations import as_activation
from keras_vit.layers.base import Layer
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.projection import Dense


@keras.saving.register_keras_serializable("keras_vit")
class MlpBlock(Layer):
    """Two dense layers with an activation between them, or a gated linear unit.

    Input and output: `(batch, tokens, width)`.

    Args:
        mlp_dim: width of the hidden layer.
        activation: `"gelu_tanh"` (the original's), `"gelu"` (erf; weights trained in PyTorch), or
            another name that `keras.activations.get` accepts.
        dropout: dropout rate after each of the two layers.
        gated: whether the activation applies to another projection of the tokens, `gate`, which is
            multiplied with the first layer's output; with `"silu"` this is SwiGLU. The two layers
            are then called `up` and `down`, otherwise `dense_0` and `dense_1`.

    Call arguments:
        tokens: the token sequence.
        training: whether to apply dropout.
        seeds: pair of seeds of the dropout after each layer; `None` to draw them.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_rate("dropout", dropout)
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.dropout = dropout
        self.gated = gated
        function = as_activation(activation)
        if gated:
            self.gate = self._dense(mlp_dim, "gate", activation=function)
            self.dense_0 = self._dense(mlp_dim, "up")
        else:
            self.dense_0 = self._dense(mlp_dim, "dense_0", activation=function)
        self.dropout_layer = Dropout(dropout, name="dropout", **self.part_options())

    def _dense(self, units, name, activation=None):
        return Dense(
            units,
            activation=activation,
            kernel_initializer="glorot_uniform",
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            name=name,
            **self.part_options(),
        )

    def build(self, input_shape):
        self.dense_1 = self._dense(input_shape[-1], "down" if self.gated else "dense_1")
        if self.gated:
            self.gate.build(input_shape)
        self.dense_0.build(input_shape)
        self.dense_1.build((*input_shape[:-1], self.mlp_dim))

    # Keras 3.12 would look for shapes in a nested default such as `seeds=(None, None)`.
    def call(self, tokens, training=None, seeds=None):
        first, second = (None, None) if seeds is None else seeds
        hidden = self.dense_0(tokens)
        if self.gated:
            hidden = self.gate(tokens) * hidden
        hidden = self.dropout_layer(hidden, training=training, seed=first)
        return self.dropout_layer(self.dense_1(hidden), training=training, seed=second)

    def compute_output_shape(self, input_shape):
        return input_shape
