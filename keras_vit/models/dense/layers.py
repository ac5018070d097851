"""Layers between token sequences and maps."""

import keras
from keras import ops

from keras_vit.core.arguments import as_pair, check_integer
from keras_vit.layers.base import Layer
from keras_vit.layers.normalization import layer_norm


@keras.saving.register_keras_serializable("keras_vit")
class TokensToMap(Layer):
    """Arranges the patches of a token sequence as a map.

    Output: `(batch, rows, columns, width)`.

    Args:
        stride: pixels of the images per patch, an int or `(height, width)`.
        num_prefix_tokens: number of tokens before the patches, which are left out.
        with_class_token: whether to append the first token to each patch, which doubles the width.

    Call arguments:
        tokens: the token sequence, `(batch, tokens, width)`.
        images: the images or maps that it was computed from, `(batch, height, width, channels)`.

    Raises:
        ValueError: if an argument is not a positive integer, or `num_prefix_tokens` negative.

    Reference:
        "Read" and "concatenate" of DPT (arXiv 2103.13413), section 3.1.

    Example:
    >>> from keras_vit.models.dense.layers import TokensToMap
    >>> tokens, images = np.zeros((2, 1 + 2 * 3, 8)), np.zeros((2, 32, 48, 3))
    >>> tuple(TokensToMap(stride=16, num_prefix_tokens=1)(tokens, images).shape)
    (2, 2, 3, 8)
    """

    def __init__(self, stride, num_prefix_tokens=0, with_class_token=False, **kwargs):
        super().__init__(**kwargs)
        self.stride = as_pair(stride, "stride")
        self.num_prefix_tokens = check_integer("num_prefix_tokens", num_prefix_tokens, minimum=0)
        self.with_class_token = with_class_token

    def call(self, tokens, images):
        batch, height, width = ops.shape(images)[:3]
        grid = height // self.stride[0], width // self.stride[1]
        patches = tokens[:, self.num_prefix_tokens :]
        if self.with_class_token:
            class_token = ops.broadcast_to(tokens[:, :1], ops.shape(patches))
            patches = ops.concatenate([patches, class_token], axis=-1)
        return ops.reshape(patches, (batch, *grid, patches.shape[-1]))

    def compute_output_shape(self, tokens_shape, images_shape):
        sides = zip(images_shape[1:3], self.stride, strict=True)
        grid = [size and size // pixels for size, pixels in sides]
        return (tokens_shape[0], *grid, tokens_shape[-1] * (2 if self.with_class_token else 1))


@keras.saving.register_keras_serializable("keras_vit")
class ResizeLike(Layer):
    """Interpolates maps bilinearly, with half-pixel centers, to the size of other maps.

    Call arguments:
        maps: `(batch, rows, columns, width)`.
        like: maps or images of the wanted rows and columns.

    Example:
    >>> from keras_vit.models.dense.layers import ResizeLike
    >>> tuple(ResizeLike()(np.zeros((2, 4, 6, 8)), np.zeros((2, 32, 48, 3))).shape)
    (2, 32, 48, 8)
    """

    def call(self, maps, like):
        known = tuple(like.shape[1:3])
        if None not in known and known == tuple(maps.shape[1:3]):
            return maps
        size = tuple(ops.shape(like)[1:3])
        if all(isinstance(side, int) for side in size):
            options = {"antialias": False, "data_format": "channels_last"}
            return ops.image.resize(maps, size, "bilinear", **options)
        # Keras needs to know the size, which a graph of TensorFlow for all sizes does not.
        rows, columns = (
            _bilinear_weights(side, own, maps.dtype)
            for side, own in zip(size, ops.shape(maps)[1:3], strict=True)
        )
        return ops.einsum("yh,xw,bhwc->byxc", rows, columns, maps)

    def compute_output_shape(self, maps_shape, like_shape):
        return (maps_shape[0], *like_shape[1:3], maps_shape[-1])


def _bilinear_weights(size, count, dtype):
    """Return the weights `(size, count)` of an interpolation with half-pixel centers."""
    places = (ops.arange(size, dtype="float32") + 0.5) * ops.cast(count, "float32")
    places = places / ops.cast(size, "float32") - 0.5
    places = ops.clip(places, 0.0, ops.cast(count - 1, "float32"))
    distances = ops.abs(places[:, None] - ops.arange(count, dtype="float32"))
    return ops.cast(ops.relu(1.0 - distances), dtype)


@keras.saving.register_keras_serializable("keras_vit")
class MaskProduct(Layer):
    """Computes the masks of classes: the products of patch and class embeddings, normalized.

    Input: `(batch, units + tokens, width)`, the class embeddings first. Output:
    `(batch, tokens, units)`.

    Args:
        units: number of classes.

    Raises:
        ValueError: if `units` is not a positive integer.

    Reference:
        Segmenter (arXiv 2105.05633), section 3.2; `MaskTransformer` of its `segm/model/decoder.py`.

    Example:
    >>> from keras_vit.models.dense.layers import MaskProduct
    >>> tuple(MaskProduct(3)(np.ones((2, 3 + 24, 8))).shape)
    (2, 24, 3)
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = check_integer("units", units, minimum=1)

    def build(self, input_shape):
        width = input_shape[-1]
        options = {
            "use_bias": False,
            "kernel_initializer": keras.initializers.RandomNormal(stddev=width**-0.5),
            **self.part_options(),
        }
        self.classes = keras.layers.Dense(width, name="classes", **options)
        self.patches = keras.layers.Dense(width, name="patches", **options)
        # The epsilon of torch's LayerNorm.
        self.norm = layer_norm(self.dtype_policy, "norm", 1e-5, self.trainable)
        self.classes.build((None, None, width))
        self.patches.build((None, None, width))
        self.norm.build((None, None, self.units))

    def call(self, tokens):
        classes = self.classes(tokens[:, : self.units])
        patches = self.patches(tokens[:, self.units :])
        # For images of any size their number would not be known.
        classes = ops.reshape(classes, (-1, self.units, tokens.shape[-1]))
        classes, patches = (ops.normalize(x, axis=-1) for x in (classes, patches))
        return self.norm(ops.matmul(patches, ops.swapaxes(classes, 1, 2)))

    def compute_output_shape(self, input_shape):
        batch_size, num_tokens, _ = input_shape
        return (batch_size, num_tokens and num_tokens - self.units, self.units)
