"""The residual units of the two ResNets: the hybrids' and BiT's.

They are alike and not the same: where the ReLU stands, how a stride pads, and where epsilons go.
"""

import dataclasses

import keras
from keras import ops

from keras_vit.layers.arguments import check_choice, check_integer

NUM_GROUPS = 32
# What the convolutions of both families are, of Keras's arguments.
FIXED = {"padding": "same", "use_bias": False}


@dataclasses.dataclass(frozen=True)
class Convention:
    """What a family of ResNets does in all its layers.

    Args:
        epsilon_in: see `StandardizedConv2D`.
        conv_epsilon: see `StandardizedConv2D`.
        norm_epsilon: of GroupNorm.
        symmetric_padding: see `StandardizedConv2D`.
    """

    epsilon_in: str
    conv_epsilon: float
    norm_epsilon: float
    symmetric_padding: bool


# `vit_jax/models_resnet.py`; GroupNorm's epsilon is Flax's default.
HYBRID = Convention("deviation", 1e-5, 1e-6, symmetric_padding=False)
# `bit_jax/models.py` of google-research/big_transfer.
BIT = Convention("variance", 1e-10, 1e-5, symmetric_padding=True)


@keras.saving.register_keras_serializable("keras_vit")
class StandardizedConv2D(keras.layers.Conv2D):
    """A convolution, without bias, whose kernel has mean 0 and variance 1 for each output channel.

    Input: `(batch, height, width, channels)`. Output: `(batch, height, width, filters)`. The kernel
    is standardised in float32 under any dtype policy.

    Args:
        filters: output channels.
        kernel_size: int or `(height, width)`, in pixels.
        strides: int or `(height, width)`, in pixels.
        symmetric_padding: whether the image gets as many zeros on the left as on the right where
            `"same"` padding, as TensorFlow has it, gives more on the right: at strides above 1.
        epsilon: added to the kernel's standard deviation or variance.
        epsilon_in: `"deviation"` or `"variance"`.

    Raises:
        ValueError: if `epsilon_in` is neither, or padding is symmetric and the kernel even.

    Reference:
        "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization" (arXiv
        1903.10520).

    Example:
    >>> tuple(StandardizedConv2D(8, 3, strides=2)(np.ones((1, 6, 6, 4))).shape)
    (1, 3, 3, 8)
    """

    def __init__(
        self,
        filters,
        kernel_size,
        strides=1,
        symmetric_padding=BIT.symmetric_padding,
        epsilon=BIT.conv_epsilon,
        epsilon_in=BIT.epsilon_in,
        **kwargs,
    ):
        stock = {"kernel_initializer": "lecun_normal", "data_format": "channels_last"}
        kwargs = {**stock, **FIXED, **kwargs}
        for name, value in FIXED.items():
            if kwargs[name] != value:
                raise ValueError(f"`{name}` must be {value!r}. Received: {name}={kwargs[name]!r}")
        super().__init__(filters, kernel_size, strides, **kwargs)
        check_choice("epsilon_in", epsilon_in, ("deviation", "variance"))
        if symmetric_padding and not all(size % 2 for size in self.kernel_size):
            raise ValueError(
                "`symmetric_padding` needs a kernel of odd size. "
                f"Received: kernel_size={kernel_size}"
            )
        self.symmetric_padding = symmetric_padding
        self.epsilon = epsilon
        self.epsilon_in = epsilon_in

    def add_weight(self, *args, **kwargs):
        # Mixed precision would round the kernel before its statistics are taken.
        return super().add_weight(*args, **{**kwargs, "autocast": False})

    def convolution_op(self, inputs, kernel):
        kernel = ops.convert_to_tensor(kernel)
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        if self.epsilon_in == "variance":
            kernel = kernel / ops.sqrt(variance + self.epsilon)
        else:
            kernel = kernel / (ops.sqrt(variance) + self.epsilon)
        kernel = ops.cast(kernel, inputs.dtype)
        # Without a stride, "same" is symmetric.
        if not self.symmetric_padding or max(self.strides) == 1:
            return super().convolution_op(inputs, kernel)
        zeros = [((size - 1) // 2, (size - 1) // 2) for size in self.kernel_size]
        inputs = ops.pad(inputs, [(0, 0), *zeros, (0, 0)])
        return ops.conv(inputs, kernel, list(self.strides), "valid", self.data_format)

    def get_config(self):
        return {
            **super().get_config(),
            "symmetric_padding": self.symmetric_padding,
            "epsilon": self.epsilon,
            "epsilon_in": self.epsilon_in,
        }


def standardized_conv(convention, filters, kernel_size, strides, dtype, name):
    """The convolution of a family."""
    return StandardizedConv2D(
        filters,
        kernel_size,
        strides,
        symmetric_padding=convention.symmetric_padding,
        epsilon=convention.conv_epsilon,
        epsilon_in=convention.epsilon_in,
        dtype=dtype,
        name=name,
    )


def group_norm(convention, dtype, name, gamma_initializer="ones"):
    """Keras's GroupNormalization with the family's epsilon; its statistics are float32."""
    return keras.layers.GroupNormalization(
        NUM_GROUPS,
        epsilon=convention.norm_epsilon,
        gamma_initializer=gamma_initializer,
        dtype=dtype,
        name=name,
    )


class Bottleneck(keras.layers.Layer):
    """What the two units share: three convolutions, their norms, a projection where needed."""

    convention = None

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.filters = check_integer("filters", filters, minimum=1)
        self.strides = check_integer("strides", strides, minimum=1)
        if self.filters % NUM_GROUPS:
            raise ValueError(
                f"`filters` must be a multiple of {NUM_GROUPS}, the groups of its GroupNorm. "
                f"Received: filters={filters}"
            )
        self.conv_1 = self._conv(filters, 1, 1, "conv_1")
        self.conv_2 = self._conv(filters, 3, strides, "conv_2")
        self.conv_3 = self._conv(4 * filters, 1, 1, "conv_3")
        self.conv_proj = None

    def _conv(self, filters, kernel_size, strides, name):
        policy = self.dtype_policy
        return standardized_conv(self.convention, filters, kernel_size, strides, policy, name)

    def _norm(self, name, **options):
        return group_norm(self.convention, self.dtype_policy, name, **options)

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

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}


@keras.saving.register_keras_serializable("keras_vit")
class BottleneckUnit(Bottleneck):
    """The residual unit of the hybrids' ResNet, which ends with a ReLU.

    Input: `(batch, height, width, channels)`. Output: the same, height and width divided by the
    stride, with `4 * filters` channels.

    Args:
        filters: channels of the 3 x 3 convolution, a multiple of 32.
        strides: of the 3 x 3 convolution.

    Raises:
        ValueError: if `filters` is no multiple of 32 or `strides` not positive.

    Reference:
        `ResidualUnit` in `vit_jax/models_resnet.py`; "Deep Residual Learning for Image Recognition"
        (arXiv 1512.03385) with GroupNorm and weight standardisation.

    Example:
    >>> tuple(BottleneckUnit(32, strides=2)(np.ones((1, 8, 8, 64))).shape)
    (1, 4, 4, 128)
    """

    convention = HYBRID

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(filters, strides, **kwargs)
        self.norm_1 = self._norm("norm_1")
        self.norm_2 = self._norm("norm_2")
        # A unit starts as its shortcut.
        self.norm_3 = self._norm("norm_3", gamma_initializer="zeros")
        self.norm_proj = None

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
    """The residual unit of BiT, a ResNet-v2: norm and ReLU stand before each convolution.

    Input: `(batch, height, width, channels)`, channels a multiple of 32. Output: the same, height
    and width divided by the stride, with `4 * filters` channels.

    Args:
        filters: channels of the 3 x 3 convolution, a multiple of 32.
        strides: of the 3 x 3 convolution.

    Raises:
        ValueError: if `filters` is no multiple of 32 or `strides` not positive.

    Reference:
        `ResidualUnit` in `bit_jax/models.py` of google-research/big_transfer; "Identity Mappings in
        Deep Residual Networks" (arXiv 1603.05027); Big Transfer (arXiv 1912.11370).

    Example:
    >>> tuple(PreActivationBottleneckUnit(32, strides=2)(np.ones((1, 8, 8, 64))).shape)
    (1, 4, 4, 128)
    """

    convention = BIT

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(filters, strides, **kwargs)
        self.norm_1 = self._norm("norm_1")
        self.norm_2 = self._norm("norm_2")
        self.norm_3 = self._norm("norm_3")

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
