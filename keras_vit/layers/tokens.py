"""Class token and register tokens of a token sequence."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer


class LearnedTokens(Layer):
    """Base class of the layers that prepend tokens, their only variable, to a token sequence."""

    num_new = 1

    def call(self, tokens):
        (learned,) = self.weights
        learned = ops.cast(learned, tokens.dtype)
        shape = (ops.shape(tokens)[0], *learned.shape[1:])
        return ops.concatenate([ops.broadcast_to(learned, shape), tokens], 1)

    def compute_output_shape(self, input_shape):
        batch_size, num_tokens, width = input_shape
        return (batch_size, num_tokens and self.num_new + num_tokens, width)


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(LearnedTokens):
    """Prepends a learnable class token to a token sequence.

    Input: `(batch, tokens, width)`. Output: `(batch, 1 + tokens, width)`.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929); initially zero as in
        `vit_jax/models_vit.py`.

    Example:
    >>> tuple(ClassToken()(np.ones((2, 24, 8))).shape)
    (2, 25, 8)
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, input_shape[-1]), initializer="zeros"
        )


@keras.saving.register_keras_serializable("keras_vit")
class RegisterTokens(LearnedTokens):
    """Prepends learnable tokens to a token sequence: registers, or a segmenter's class embeddings.

    Input: `(batch, tokens, width)`. Output: `(batch, num_registers + tokens, width)`.

    Args:
        num_registers: number of tokens.
        stddev: standard deviation of their initial values.

    Reference:
        "Vision Transformers Need Registers" (arXiv 2309.16588); `reg_token` in timm.

    Example:
    >>> tuple(RegisterTokens(4)(np.ones((2, 24, 8))).shape)
    (2, 28, 8)
    """

    def __init__(self, num_registers: int, stddev: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stddev = stddev
        self.num_new = self.num_registers = num_registers

    def build(self, input_shape):
        self.tokens = self.add_weight(
            name="tokens",
            shape=(1, self.num_registers, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )
