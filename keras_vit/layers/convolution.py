"""Standardized convolutions, GroupNorm and pooling, with the conventions of the two ResNets.

On torch, images keep their channels last in memory. Keras copies them twice for each convolution,
and once for a pooling, which then takes ten times as long.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import check_choice, check_epsilon, check_integer
from keras_vit.core.pixels import check_floats
from keras_vit.layers.base import KeepsFrozen
from keras_vit.layers.normalization import GroupNorm

NUM_GROUPS = 32
# Arguments of Keras's Conv2D that both families share.
FIXED = {"padding": "same", "use_bias": False, "data_format": "channels_last", "groups": 1}


@dataclasses.dataclass(frozen=True)
class Convention:
    """Conventions of all layers of a family of ResNets.

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


# `vit_jax/models_resnet.py`; GroupNorm's epsilon is Flax's default.
HYBRID = Convention("deviation", 1e-5, 1e-6, symmetric_padding=False)
# `bit_jax/models.py` of google-research/big_transfer.
BIT = Convention("variance", 1e-10, 1e-5, symmetric_padding=True)


@keras.saving.register_keras_serializable("keras_vit")
class StandardizedConv2D(KeepsFrozen, keras.layers.Conv2D):
    """Convolution without bias whose kernel has mean 0 and variance 1 in each output channel.

    Input: `(batch, height, width, channels)`. Output: `(batch, height, width, filters)`, height and
    width divided by the strides. The kernel is standardized in float32 under any dtype policy.

    Args:
        filters: output channels.
        kernel_size: int or `(height, width)`, in pixels.
        strides: int or `(height, width)`, in pixels.
        symmetric_padding: whether strides above 1 pad equally on both sides; TensorFlow's `"same"`
            padding adds more zeros on the right and at the bottom.
        epsilon: added to the kernel's standard deviation or variance.
        epsilon_in: `"deviation"` or `"variance"`.
        folded: whether the variable `kernel` is standardized already, as in a model for inference.

    Raises:
        ValueError: if `epsilon` is not between 0 and 1; `epsilon_in` is unknown; the padding is
            symmetric and the kernel even; `padding` is not `"same"`, `use_bias` not `False`,
            `data_format` not `"channels_last"`, or `dilation_rate` or `groups` not 1.

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
            if kwargs[name] != value:
                raise ValueError(f"`{name}` must be {value!r}. Received: {name}={kwargs[name]!r}")
        super().__init__(filters, kernel_size, strides, **kwargs)
        check_choice("dilation_rate", tuple(self.dilation_rate), ((1, 1),))
        check_choice("epsilon_in", epsilon_in, ("deviation", "variance"))
        check_epsilon(epsilon)
        if symmetric_padding and not all(size % 2 for size in self.kernel_size):
            raise ValueError(
                "`symmetric_padding` needs a kernel of odd size. "
                f"Received: kernel_size={kernel_size}"
            )
        self.symmetric_padding = symmetric_padding
        self.epsilon = epsilon
        self.epsilon_in = epsilon_in
        self.folded = folded

    def add_weight(self, *args, **kwargs):
        # Mixed precision would round the kernel before its statistics are taken.
        return super().add_weight(*args, **{**kwargs, "autocast": False})

    def standardize(self, kernel):
        """Return the kernel with mean 0 and variance 1 per output channel, at least in float32."""
        kernel = ops.convert_to_tensor(kernel)
        if keras.backend.backend() == "torch":
            return self._standardize_rows(rows_of(kernel)).t().reshape(kernel.shape)
        # The policy "float16" stores the kernel in half precision.
        kernel = ops.cast(kernel, keras.backend.result_type(kernel.dtype, "float32"))
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        if self.epsilon_in == "variance":
            return kernel / ops.sqrt(variance + self.epsilon)
        return kernel / (ops.sqrt(variance) + self.epsilon)

    def convolution_op(self, inputs, kernel):
        check_floats(inputs, "inputs")
        if inputs.shape[-1] is None:
            # TensorFlow would take six channels for two groups of three.
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
        rows = rows_of(ops.convert_to_tensor(kernel))
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
            # The convolution pads both sides alike without a copy.
            zeros, padding = [before for before, _ in padding], [(0, 0), (0, 0)]
        images = pad_torch(inputs, padding)
        outputs = torch.nn.functional.conv2d(images, weight, stride=self.strides, padding=zeros)
        return torch.permute(outputs, (0, 2, 3, 1))

    def _standardize_rows(self, rows):
        """Return what `standardize` does, for a tensor `(filters, height * width * channels)`."""
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

    Input: `(batch, height, width, channels)`. Output: the same with a smaller height and width.

    Raises:
        ValueError: if `data_format` is not `"channels_last"`.

    Example:
    >>> from keras_vit.layers.convolution import MaxPool
    >>> tuple(MaxPool(3, 2, "same")(np.ones((1, 8, 6, 4))).shape)
    (1, 4, 3, 4)
    """

    def __init__(self, *args, data_format="channels_last", **kwargs):
        check_choice("data_format", data_format, ("channels_last",))
        super().__init__(*args, data_format=data_format, **kwargs)

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
    """Return the padding "same" of one axis, `(before, after)`."""
    total = max((-(-length // stride) - 1) * stride + size - length, 0)
    return total // 2, total - total // 2


def rows_of(kernel):
    """Return a kernel of torch as a matrix in memory with one row per output channel.

    In this layout torch convolves and standardizes fastest.
    """
    return kernel.reshape(-1, kernel.shape[-1]).t().contiguous()


def pad_torch(images, padding, value=0.0):
    """Return padded images of torch, their axes in the order of torch and their memory as it is."""
    import torch

    (top, bottom), (left, right) = padding
    images = torch.permute(images, (0, 3, 1, 2))
    if not any((top, bottom, left, right)):
        return images
    return torch.nn.functional.pad(images, (left, right, top, bottom), value=value)


def check_width(argument, width):
    """Return the width as a Python integer, checked to be a multiple of the groups."""
    width = check_integer(argument, width, minimum=1)
    if width % NUM_GROUPS:
        raise ValueError(
            f"`{argument}` must be a multiple of {NUM_GROUPS}, the groups of GroupNorm. "
            f"Received: {argument}={width}"
        )
    return width


def standardized_conv(
    convention, filters, kernel_size, strides, dtype, name, trainable=True, folded=False
):
    """Return a `StandardizedConv2D` with the conventions of a family."""
    return StandardizedConv2D(
        filters,
        kernel_size,
        strides,
        symmetric_padding=convention.symmetric_padding,
        epsilon=convention.conv_epsilon,
        epsilon_in=convention.epsilon_in,
        folded=folded,
        trainable=trainable,
        dtype=dtype,
        name=name,
    )


def group_norm(convention, dtype, name, gamma_initializer="ones", trainable=True):
    """Return a `GroupNorm` with a family's epsilon."""
    return GroupNorm(
        NUM_GROUPS,
        epsilon=convention.norm_epsilon,
        gamma_initializer=gamma_initializer,
        trainable=trainable,
        dtype=dtype,
        name=name,
    )
