"""Image patches as tokens, and their corruption."""

from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import as_pair, grid_size
from keras_vit.layers.layer import Layer


@keras.saving.register_keras_serializable("keras_vit")
class PatchEmbedding(Layer):
    """Cuts an image into patches and projects each one linearly to a token.

    Input: `(batch, height, width, channels)`. Height and width are multiples of the patch size, or
    `None` if calls may have images of different sizes.
    Output: `(batch, num_patches, embedding_dim)`, patches row by row.

    Args:
        embedding_dim: width of a token.
        patch_size: int or `(height, width)` of a patch, in pixels.
        use_bias: whether the projection has a bias.

    Attributes:
        patch_size: `(height, width)` of a patch.
        grid_size: `(rows, columns)` of the patches, set when the layer is built; `None` if the
            images may have any size.

    Raises:
        ValueError: if the patches do not tile the images. In a graph with unknown image sizes, the
            backend raises an error of another type.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929). The projection is a convolution
        with stride equal to its kernel, as in `vit_jax/models_vit.py`.

    Example:
    >>> tuple(PatchEmbedding(8, patch_size=4)(np.zeros((2, 16, 24, 3))).shape)
    (2, 24, 8)
    """

    def __init__(
        self,
        embedding_dim: int,
        patch_size: int | tuple[int, int],
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
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
            **self.sublayer_options(),
        )

    def build(self, input_shape):
        self.grid_size = grid_size(tuple(input_shape[1:3]), self.patch_size)
        height, width, channels = input_shape[1:]
        self.input_spec = keras.layers.InputSpec(ndim=4, axes={1: height, 2: width, 3: channels})
        self.projection.build(input_shape)

    def call(self, images):
        rows, columns = self.grid_size or grid_size(ops.shape(images)[1:3], self.patch_size)
        if None in images.shape[1:]:
            sides = rows * self.patch_size[0], columns * self.patch_size[1]
            images = self._with_checked_size(images, *sides)
        return ops.reshape(self.projection(images), (-1, rows * columns, self.embedding_dim))

    def _with_checked_size(self, images, height, width):
        """Return the images; when the graph runs, images of another size raise an error.

        `model.predict` traces a graph with unknown sizes after it has seen images of two sizes.
        Without the check, the tokens of images of another size would be reshaped to a different
        number of images, or pixels of incomplete patches would be dropped.
        """
        shape = (ops.shape(images)[0], height, width)
        # Concatenation fails for images of another size. The zeros have no channels, so that it
        # does not change the images.
        no_channels = ops.zeros((*shape, 0), images.dtype)
        images = ops.concatenate([images, no_channels], axis=-1)
        return ops.reshape(images, (*shape, self.input_spec.axes[3]))

    def compute_output_shape(self, input_shape):
        grid = grid_size(tuple(input_shape[1:3]), self.patch_size)
        return (input_shape[0], grid and grid[0] * grid[1], self.embedding_dim)


@keras.saving.register_keras_serializable("keras_vit")
class CorruptPatches(Layer):
    """Replaces some patch embeddings by a learnable `[mask]` or by the embedding of another patch.

    Input: tokens `(batch, patches, width)`, and integers `(batch, patches)`. The integer of a token
    is the index of the patch whose embedding replaces the token, the token's own index to keep the
    token, or -1 for `[mask]`. Output: `(batch, patches, width)`.

    Call arguments:
        tokens: the patch embeddings.
        corruption: the integers, as drawn by `keras_vit.data.mask_patches`.

    Reference:
        Section B.1.2 of the ViT paper (arXiv 2010.11929). The paper does not say how `[mask]` is
        initialized. As in BERT (arXiv 1810.04805), it is normal with standard deviation 0.02.

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
        # One image at a time: indices into the whole batch would mix images of several devices.
        taken = ops.vectorized_map(
            lambda image: ops.take(*image, axis=0), (tokens, ops.maximum(corruption, 0))
        )
        return ops.where(corruption[..., None] < 0, ops.cast(self.mask_token, tokens.dtype), taken)

    def compute_output_shape(self, tokens_shape, corruption_shape):
        return tokens_shape
