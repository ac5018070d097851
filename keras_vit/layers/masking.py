"""Masked patch prediction: replaces patch embeddings that the model learns to predict."""

import keras
from keras import ops

from keras_vit.layers.base import Layer


@keras.saving.register_keras_serializable("keras_vit")
class CorruptPatches(Layer):
    """Replaces some patch embeddings by a learnable `[mask]` embedding or by another patch's.

    Input: tokens `(batch, patches, width)`, and integers `(batch, patches)`. The integer of a token
    is the index of the patch whose embedding replaces it, its own index to keep it, or -1 for
    `[mask]`. Output: `(batch, patches, width)`.

    Call arguments:
        tokens: the patch embeddings.
        corruption: the integers, as drawn by `keras_vit.data.mask_patches`.

    Reference:
        Section B.1.2 of the ViT paper (arXiv 2010.11929). The paper gives no initial value; this is
        BERT's (arXiv 1810.04805), normal with standard deviation 0.02.

    Example:
    >>> tokens = np.array([[[1.0], [2.0], [3.0]]])
    >>> corrupted = CorruptPatches()(tokens, np.array([[0, 0, 2]]))
    >>> keras.ops.convert_to_numpy(corrupted)[0, :, 0]
    array([1., 1., 3.], dtype=float32)
    """

    def build(self, tokens_shape, corruption_shape):
        self.mask_token = self.add_weight(
            name="mask_token",
            shape=(1, 1, tokens_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, tokens, corruption):
        corruption = ops.cast(corruption, "int32")
        # Image by image: indices into the whole batch would mix the batches of several devices.
        taken = ops.vectorized_map(
            lambda image: ops.take(*image, axis=0), (tokens, ops.maximum(corruption, 0))
        )
        return ops.where(corruption[..., None] < 0, ops.cast(self.mask_token, tokens.dtype), taken)

    def compute_output_shape(self, tokens_shape, corruption_shape):
        return tokens_shape
