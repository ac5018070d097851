"""Image patches as tokens."""

import keras
from keras import ops

from keras_vit.core.arguments import as_pair, grid_size
from keras_vit.core.pixels import check_floats
from keras_vit.layers.base import Layer


@keras.saving.register_keras_serializable("keras_vit")
class PatchEmbedding(Layer):
    """Cuts an image into patches and projects each one linearly to a token.

    Input: `(batch, height, width, channels)`, height and width multiples of the patch size.
    Output: `(batch, num_patches, embedding_dim)`, patches row by row.

    Args:
        embedding_dim: width of a token.
        patch_size: int or `(height, width)` of a patch, in pixels.
        use_bias: whether the projection has a bias.

    Attributes:
        patch_size: `(height, width)` of a patch.
        grid_size: `(rows, columns)` of the patches, set when the layer is built.

    Raises:
        ValueError: if the images are not `(batch, height, width, channels)` of known size, or the
            patches do not tile them.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929). The projection is a convolution
        with stride equal to its kernel, as in `vit_jax/models_vit.py`.

    Example:
    >>> tuple(PatchEmbedding(8, patch_size=4)(np.zeros((2, 16, 24, 3))).shape)
    (2, 24, 8)
    """

    def __init__(self, embedding_dim, patch_size, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.embedding_dim = embedding_dim
        self.patch_size = as_pair(patch_size, "patch_size")
        self.use_bias = use_bias
        self.grid_size = None
        self.projection = keras.layers.Conv2D(
            embedding_dim,
            self.patch_size,
            strides=self.patch_size,
            use_bias=use_bias,
            kernel_initializer="lecun_normal",
            data_format="channels_last",
            name="projection",
            **self.part_options(),
        )

    def build(self, input_shape):
        if len(input_shape) != 4 or None in input_shape[1:3]:
            raise ValueError(
                "`PatchEmbedding` takes images of known size, `(batch, height, width, channels)`. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        self.grid_size = grid_size(tuple(input_shape[1:3]), self.patch_size)
        height, width, channels = input_shape[1:]
        self.input_spec = keras.layers.InputSpec(ndim=4, axes={1: height, 2: width, 3: channels})
        self.projection.build(input_shape)

    def call(self, images):
        check_floats(images)
        rows, columns = self.grid_size
        return ops.reshape(self.projection(images), (-1, rows * columns, self.embedding_dim))

    def compute_output_shape(self, input_shape):
        rows, columns = grid_size(tuple(input_shape[1:3]), self.patch_size)
        return (input_shape[0], rows * columns, self.embedding_dim)

    def get_config(self):
        return {
            **super().get_config(),
            "embedding_dim": self.embedding_dim,
            "patch_size": self.patch_size,
            "use_bias": self.use_bias,
        }
