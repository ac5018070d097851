"""Layers of two kinds of ResNets: BiT, and the ResNet inside the hybrids.

The two differ in the order of convolutions and ReLUs, in the padding of convolutions with strides,
and in what epsilon is added to.

On torch, these layers keep the channels of images last in memory. Keras's own layers would copy the
images twice for each convolution, and once for a pooling, which then takes ten times as long.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import check_choice
from keras_vit.layers.layer import Layer, RecordsFrozenOrQuantized
from keras_vit.layers.normalization import GroupNorm

NUM_GROUPS = 32
# Arguments of Keras's Conv2D that are the same in both kinds of ResNets.
FIXED = {
    "padding": "same",
    "use_bias": False,
    "data_format": "channels_last",
    "groups": 1,
}


@dataclasses.dataclass(frozen=True)
class Convention:
    """Settings of the layers in one kind of ResNet.

    Args:
        epsilon_in: see `StandardizedConv2D`.
        conv_epsilon: see `StandardizedConv2D`.
        norm_epsilon: epsilon of GroupNorm.
        symmetric_padding: see `StandardizedConv2D`.
    """

    epsilon_in: str
    conv_epsilon: float
    norm_epsilon: float
    symmetric_padding: bool


# From `vit_jax/models_resnet.py`. The epsilon of GroupNorm is Flax's default.
HYBRID = Convention("deviation", 1e-5, 1e-6, symmetric_padding=False)
# From `bit_jax/models.py` of google-research/big_transfer.
BIT = Convention("variance", 1e-10, 1e-5, symmetric_padding=True)


@keras.saving.register_keras_serializable("keras_vit")
class StandardizedConv2D(RecordsFrozenOrQuantized, keras.layers.Conv2D):
    """Convolution without bias whose kernel has mean 0 and variance 1 in each output channel.

    Input: `(batch, height, width, channels)`. Output: `(batch, height, width, filters)`, with the
    height and the width divided by the strides. The kernel is standardized in float32 under any
    dtype policy.

    Args:
        filters: output channels.
        kernel_size: int or `(height, width)`, in pixels.
        strides: int or `(height, width)`, in pixels.
        symmetric_padding: whether convolutions with strides above 1 pad both sides equally.
            TensorFlow's `"same"` padding may add more zeros on the right and at the bottom.
        epsilon: number that is added before the kernel is divided by its standard deviation.
        epsilon_in: what `epsilon` is added to, `"deviation"` or `"variance"`.
        folded: whether the variable `kernel` is already standardized, as in a model from
            `keras_vit.for_inference`.

    Raises:
        ValueError: if `epsilon_in` is unknown, `padding` is not `"same"`, `use_bias` not `False`,
            `data_format` not `"channels_last"`, or `groups` not 1.

    Reference:
        "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization" (arXiv
        1903.10520).

    Example:
    >>> tuple(StandardizedConv2D(8, 3, strides=2)(np.ones((1, 6, 6, 4))).shape)
    (1, 3, 3, 8)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        strides: int | tuple[int, int] = 1,
        symmetric_padding: bool = BIT.symmetric_padding,
        epsilon: float = BIT.conv_epsilon,
        epsilon_in: str = BIT.epsilon_in,
        folded: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs = {"kernel_initializer": "lecun_normal", **FIXED, **kwargs}
        for name, value in FIXED.items():
            check_choice(name, kwargs[name], (value,))
        super().__init__(filters, kernel_size, strides, **kwargs)
        check_choice("epsilon_in", epsilon_in, ("deviation", "variance"))
        self.symmetric_padding = symmetric_padding
        self.epsilon = epsilon
        self.epsilon_in = epsilon_in
        self.folded = folded

    def add_weight(self, *args, **kwargs):
        # With autocast, mixed precision would round the kernel before it is standardized.
        return super().add_weight(*args, **{**kwargs, "autocast": False})

    def standardize(self, kernel):
        """Return the kernel, at least in float32, with mean 0 and variance 1 per output channel."""
        kernel = ops.convert_to_tensor(kernel)
        if keras.backend.backend() == "torch":
            return self._standardize_rows(kernel_rows(kernel)).t().reshape(kernel.shape)
        # Under the policy "float16", the kernel is stored in half precision.
        kernel = ops.cast(kernel, keras.backend.result_type(kernel.dtype, "float32"))
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        if self.epsilon_in == "variance":
            return kernel / ops.sqrt(variance + self.epsilon)
        return kernel / (ops.sqrt(variance) + self.epsilon)

    def convolution_op(self, inputs, kernel):
        if inputs.shape[-1] is None:
            # Set the number, or TensorFlow would accept six channels as two groups of three.
            channels = self.input_spec.axes[-1]
            inputs = ops.reshape(inputs, (*ops.shape(inputs)[:3], channels))
        if keras.backend.backend() == "torch":
            return self._convolve_torch(inputs, kernel)
        kernel = ops.cast(kernel if self.folded else self.standardize(kernel), inputs.dtype)
        # At stride 1, "same" padding is symmetric.
        if not self.symmetric_padding or max(self.strides) == 1:
            return super().convolution_op(inputs, kernel)
        zeros = [((size - 1) // 2, (size - 1) // 2) for size in self.kernel_size]
        inputs = ops.pad(inputs, [(0, 0), *zeros, (0, 0)])
        return ops.conv(inputs, kernel, list(self.strides), "valid", self.data_format)

    def _convolve_torch(self, inputs, kernel):
        import torch

        *shape, filters = kernel.shape
        rows = kernel_rows(ops.convert_to_tensor(kernel))
        if not self.folded:
            rows = self._standardize_rows(rows)
        weight = rows.to(inputs.dtype).reshape(filters, *shape).permute(0, 3, 1, 2)
        if self.symmetric_padding:
            padding = [((size - 1) // 2, (size - 1) // 2) for size in self.kernel_size]
        else:
            sizes = zip(inputs.shape[1:3], self.kernel_size, self.strides, strict=True)
            padding = [same_padding(*size) for size in sizes]
        zeros = [0, 0]
        if all(before == after for before, after in padding):
            # The convolution itself can pad both sides equally, without a copy of the images.
            zeros, padding = [before for before, _ in padding], [(0, 0), (0, 0)]
        images = pad_torch(inputs, padding)
        outputs = torch.nn.functional.conv2d(images, weight, stride=self.strides, padding=zeros)
        return torch.permute(outputs, (0, 2, 3, 1))

    def _standardize_rows(self, rows):
        """Standardize the rows of `(filters, height * width * channels)` as `standardize` does."""
        import torch

        if rows.dtype.itemsize < 4:
            rows = rows.float()
        if self.epsilon_in == "variance" and rows.shape[1] > 1:
            normalize = torch.nn.functional.batch_norm
            return normalize(rows[None], None, None, training=True, momentum=0, eps=self.epsilon)[0]
        variance, mean = torch.var_mean(rows, dim=1, correction=0, keepdim=True)
        if self.epsilon_in == "variance":
            return (rows - mean) / torch.sqrt(variance + self.epsilon)
        return (rows - mean) / (torch.sqrt(variance) + self.epsilon)


@keras.saving.register_keras_serializable("keras_vit")
class MaxPool(keras.layers.MaxPooling2D):
    """Keras's MaxPooling2D of images with channels last.

    Input: `(batch, height, width, channels)`. Output: maps with a smaller height and width.

    Example:
    >>> from keras_vit.layers.bottleneck import MaxPool
    >>> tuple(MaxPool(3, 2, "same", "channels_last")(np.ones((1, 8, 6, 4))).shape)
    (1, 4, 3, 4)
    """

    def call(self, inputs):
        if keras.backend.backend() != "torch":
            return super().call(inputs)
        import torch

        padding = [(0, 0), (0, 0)]
        if self.padding == "same":
            sizes = zip(inputs.shape[1:3], self.pool_size, self.strides, strict=True)
            padding = [same_padding(*size) for size in sizes]
        images = pad_torch(inputs, padding, -float("inf"))
        outputs = torch.nn.functional.max_pool2d(images, self.pool_size, self.strides)
        return torch.permute(outputs, (0, 2, 3, 1))


def same_padding(length, size, stride):
    """Return the zeros `(before, after)` that "same" padding adds to one axis."""
    total = max((-(-length // stride) - 1) * stride + size - length, 0)
    return total // 2, total - total // 2


def kernel_rows(kernel):
    """Return a torch kernel as a contiguous matrix with one row per output channel.

    Torch convolves and standardizes fastest in this layout.
    """
    return kernel.reshape(-1, kernel.shape[-1]).t().contiguous()


def pad_torch(images, padding, value=0.0):
    """Return padded images `(batch, channels, height, width)`; in memory, channels stay last."""
    import torch

    (top, bottom), (left, right) = padding
    images = torch.permute(images, (0, 3, 1, 2))
    if not any((top, bottom, left, right)):
        return images
    return torch.nn.functional.pad(images, (left, right, top, bottom), value=value)


def standardized_conv(convention, filters, kernel_size, strides, **options):
    """Return a `StandardizedConv2D` with the settings of one kind of ResNet."""
    return StandardizedConv2D(
        filters,
        kernel_size,
        strides,
        symmetric_padding=convention.symmetric_padding,
        epsilon=convention.conv_epsilon,
        epsilon_in=convention.epsilon_in,
        **options,
    )


def group_norm(convention, **options):
    """Return a `GroupNorm` with the epsilon of one kind of ResNet."""
    return GroupNorm(NUM_GROUPS, epsilon=convention.norm_epsilon, **options)


class Bottleneck(Layer):
    """Base class of residual units: three convolutions, their norms, and a projected shortcut.

    The shortcut is only projected if the unit changes the shape of its input.

    Args:
        filters: channels of the 3 x 3 convolution, a multiple of 32.
        strides: stride of the 3 x 3 convolution.
        folded: see `StandardizedConv2D`.
    """

    convention: Convention
    last_gamma = "ones"

    def __init__(self, filters: int, strides: int = 1, folded: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folded = folded
        self.filters = filters
        self.strides = strides
        self.conv_1 = self._conv(filters, 1, 1, "conv_1")
        self.conv_2 = self._conv(filters, 3, strides, "conv_2")
        self.conv_3 = self._conv(4 * filters, 1, 1, "conv_3")
        self.conv_proj = None
        self.norm_1 = self._norm("norm_1")
        self.norm_2 = self._norm("norm_2")
        self.norm_3 = self._norm("norm_3", gamma_initializer=self.last_gamma)

    def _conv(self, filters, kernel_size, strides, name):
        options = {"folded": self.folded, "name": name, **self.sublayer_options()}
        return standardized_conv(self.convention, filters, kernel_size, strides, **options)

    def _norm(self, name, **options):
        return group_norm(self.convention, name=name, **self.sublayer_options(), **options)

    def build(self, input_shape):
        inner_shape = (*input_shape[:-1], self.filters)
        self.conv_1.build(input_shape)
        self.conv_2.build(inner_shape)
        self.conv_3.build(inner_shape)
        self.norm_2.build(inner_shape)
        if input_shape[-1] != 4 * self.filters or self.strides > 1:
            self.conv_proj = self._conv(4 * self.filters, 1, self.strides, "conv_proj")
            self.conv_proj.build(input_shape)

    def compute_output_shape(self, input_shape):
        batch, *size, _ = input_shape
        size = [None if pixels is None else -(-pixels // self.strides) for pixels in size]
        return (batch, *size, 4 * self.filters)


@keras.saving.register_keras_serializable("keras_vit")
class BottleneckUnit(Bottleneck):
    """Residual unit of the hybrids' ResNet, which ends with a ReLU.

    Input: `(batch, height, width, channels)`. The output has the height and the width divided by
    the stride, and `4 * filters` channels.

    Args:
        filters: channels of the 3 x 3 convolution, a multiple of 32.
        strides: stride of the 3 x 3 convolution.
        folded: see `StandardizedConv2D`.

    Reference:
        `ResidualUnit` in `vit_jax/models_resnet.py`; "Deep Residual Learning for Image Recognition"
        (arXiv 1512.03385) with GroupNorm and weight standardization.

    Example:
    >>> tuple(BottleneckUnit(32, strides=2)(np.ones((1, 8, 8, 64))).shape)
    (1, 4, 4, 128)
    """

    convention = HYBRID
    # With zeros, an untrained unit returns its shortcut.
    last_gamma = "zeros"

    def build(self, input_shape):
        super().build(input_shape)
        self.norm_1.build((*input_shape[:-1], self.filters))
        output_shape = self.compute_output_shape(input_shape)
        self.norm_3.build(output_shape)
        if self.conv_proj is not None:
            self.norm_proj = self._norm("norm_proj")
            self.norm_proj.build(output_shape)

    def call(self, inputs):
        shortcut = inputs
        if self.conv_proj is not None:
            shortcut = self.norm_proj(self.conv_proj(inputs))
        x = ops.relu(self.norm_1(self.conv_1(inputs)))
        x = ops.relu(self.norm_2(self.conv_2(x)))
        return ops.relu(shortcut + self.norm_3(self.conv_3(x)))


@keras.saving.register_keras_serializable("keras_vit")
class PreActivationBottleneckUnit(Bottleneck):
    """Residual unit of BiT, a ResNet-v2: norm and ReLU come before each convolution.

    Input: `(batch, height, width, channels)`, with a multiple of 32 channels. The output has the
    height and the width divided by the stride, and `4 * filters` channels.

    Args:
        filters: channels of the 3 x 3 convolution, a multiple of 32.
        strides: stride of the 3 x 3 convolution.
        folded: see `StandardizedConv2D`.

    Reference:
        `ResidualUnit` in `bit_jax/models.py` of google-research/big_transfer; "Identity Mappings in
        Deep Residual Networks" (arXiv 1603.05027); Big Transfer (arXiv 1912.11370).

    Example:
    >>> tuple(PreActivationBottleneckUnit(32, strides=2)(np.ones((1, 8, 8, 64))).shape)
    (1, 4, 4, 128)
    """

    convention = BIT

    def build(self, input_shape):
        super().build(input_shape)
        self.norm_1.build(input_shape)
        self.norm_3.build((*input_shape[:-1], self.filters))

    def call(self, inputs):
        x = ops.relu(self.norm_1(inputs))
        shortcut = inputs if self.conv_proj is None else self.conv_proj(x)
        x = ops.relu(self.norm_2(self.conv_1(x)))
        x = ops.relu(self.norm_3(self.conv_2(x)))
        return shortcut + self.conv_3(x)
