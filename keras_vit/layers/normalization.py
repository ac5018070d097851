"""LayerNorm and GroupNorm with the epsilons of the original models, and LayerScale."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.layer import Layer, RecordsFrozenOrQuantized

# Flax's default, used by vit_jax and big_vision; Keras's default is 1e-3.
LAYER_NORM_EPSILON = 1e-6


def layer_norm(dtype, name, epsilon=LAYER_NORM_EPSILON, trainable=True):
    """Return Keras's LayerNormalization, by default with the epsilon of the original models."""
    return keras.layers.LayerNormalization(
        epsilon=epsilon, trainable=trainable, dtype=dtype, name=name
    )


@keras.saving.register_keras_serializable("keras_vit")
class GroupNorm(RecordsFrozenOrQuantized, keras.layers.GroupNormalization):
    """Keras's GroupNormalization over the last axis of images, with fewer passes over the images.

    The statistics of a group are computed from the means of its channels, at least in float32.

    Input and output: `(batch, height, width, channels)`.

    Reference:
        "Group Normalization" (arXiv 1803.08494). The variance is the mean of the squares less the
        square of the mean, as in Flax (`linen/normalization.py`); this loses digits where
        the mean of a group is many times its deviation.

    Example:
    >>> from keras_vit.layers.normalization import GroupNorm
    >>> tuple(GroupNorm(groups=4)(np.ones((1, 2, 3, 8))).shape)
    (1, 2, 3, 8)
    """

    # Whether TensorFlow computes means over images by products of matrices.
    sums_by_matmul = True

    def call(self, inputs):
        if keras.backend.backend() == "torch" and _can_call_torch(inputs):
            return self._call_torch(inputs)
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        x = ops.cast(inputs, dtype)
        mean = self._group_means(self._channel_means(x))
        variance = self._group_means(self._channel_means(ops.square(x))) - ops.square(mean)
        # Rounding may make the variance negative.
        deviation = ops.sqrt(ops.maximum(variance, 0) + self.epsilon)
        scale = self._repeat_per_channel(1 / deviation) * ops.cast(self.gamma, dtype)
        shift = ops.cast(self.beta, dtype) - self._repeat_per_channel(mean) * scale
        outputs = x * scale[:, None, None] + shift[:, None, None]
        return ops.cast(outputs, self.compute_dtype)

    def _channel_means(self, images):
        """Return the mean of each channel of each image, `(batch, channels)`."""
        width = images.shape[2]
        is_multiplied = self.sums_by_matmul and keras.backend.backend() == "tensorflow"
        if width is None or not is_multiplied:
            return ops.mean(images, axis=(1, 2))
        # On CPUs TensorFlow multiplies matrices faster than it adds their rows. Each product sums
        # one row of pixels; a product that sums all pixels of an image would lose digits.
        weights = ops.full((1, width), 1 / width, dtype=images.dtype)
        return ops.mean(ops.matmul(weights, images)[:, :, 0], axis=1)

    def _group_means(self, means):
        """Return the mean of each group, `(batch, groups)`, from the means of the channels."""
        size = means.shape[-1] // self.groups
        return ops.mean(ops.reshape(means, (-1, self.groups, size)), axis=-1)

    def _repeat_per_channel(self, values):
        """Repeat the value of each group for every channel of the group, `(batch, channels)`."""
        return ops.repeat(values, self.gamma.shape[0] // self.groups, axis=-1)

    def _call_torch(self, inputs):
        import torch

        channels_first = torch.permute(inputs, (0, 3, 1, 2))
        gamma, beta = (ops.convert_to_tensor(weight) for weight in (self.gamma, self.beta))
        outputs = torch.nn.functional.group_norm(
            channels_first, self.groups, gamma, beta, self.epsilon
        )
        return torch.permute(outputs, (0, 2, 3, 1))


def _can_call_torch(inputs):
    """Whether torch's `group_norm` can take these inputs.

    On CPUs torch 2.13 crashes in the gradient of gamma and beta if the inputs have channels last
    and do not need a gradient.
    """
    import torch

    return inputs.requires_grad or not torch.is_grad_enabled()


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

    def __init__(self, initial_value: float, **kwargs: Any) -> None:
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
