"""LayerNorm with the original's epsilon, and LayerScale."""

import keras
from keras import ops

from keras_vit.layers.base import Layer

# Flax's default, used by vit_jax and big_vision; Keras's default is 1e-3.
LAYER_NORM_EPSILON = 1e-6


def layer_norm(dtype, name, epsilon=LAYER_NORM_EPSILON, trainable=True):
    """Return Keras's LayerNormalization with the original's epsilon."""
    return keras.layers.LayerNormalization(
        epsilon=epsilon, trainable=trainable, dtype=dtype, name=name
    )


@keras.saving.register_keras_serializable("keras_vit")
class LayerScale(Layer):
    """Scales each channel by a learnable factor.

    Input and output: `(batch, tokens, width)`.

    Args:
        initial_value: initial value of every factor, such as 1e-5.

    Reference:
        Section 2.1 of "Going deeper with Image Transformers" (arXiv 2103.17239); used by DeiT III
        (arXiv 2204.07118) and DINOv2 (arXiv 2304.07193).

    Example:
    >>> tuple(LayerScale(0.5)(np.ones((2, 5, 8))).shape)
    (2, 5, 8)
    """

    def __init__(self, initial_value, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, tokens):
        return tokens * ops.cast(self.gamma, tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "initial_value": self.initial_value}
