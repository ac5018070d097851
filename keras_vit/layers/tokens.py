"""The class token and the position embedding of a token sequence."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(keras.layers.Layer):
    """Puts a learnable class token in front of a token sequence.

    Input: `(batch, tokens, width)`. Output: `(batch, 1 + tokens, width)`.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929); zeros at the start as in
        `vit_jax/models_vit.py`.

    Example:
    >>> tuple(ClassToken()(np.ones((2, 24, 8))).shape)
    (2, 25, 8)
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, input_shape[-1]), initializer="zeros"
        )

    def call(self, tokens):
        batch_size, width = ops.shape(tokens)[0], tokens.shape[-1]
        token = ops.broadcast_to(ops.cast(self.token, tokens.dtype), (batch_size, 1, width))
        return ops.concatenate([token, tokens], axis=1)

    def compute_output_shape(self, input_shape):
        batch_size, num_tokens, width = input_shape
        return (batch_size, num_tokens + 1, width)


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding(keras.layers.Layer):
    """Adds a learnable embedding of its position to each token.

    Input and output: `(batch, tokens, width)`. Each position has its own row, that of the class
    token included; `keras_vit.resize` interpolates the table for another image size.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929); normal with standard deviation
        0.02 at the start as in `vit_jax/models_vit.py`.

    Example:
    >>> tuple(AddPositionEmbedding()(np.ones((2, 25, 8))).shape)
    (2, 25, 8)
    """

    def build(self, input_shape):
        self.embedding = self.add_weight(
            name="embedding",
            shape=(1, *input_shape[1:]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, tokens):
        return tokens + ops.cast(self.embedding, tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape
