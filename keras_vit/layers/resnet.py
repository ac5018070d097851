"""Residual units of the two ResNets: the hybrids' and BiT's.

They differ in the place of the ReLU, the padding of strides and the use of epsilon.
"""

from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import check_integer
from keras_vit.layers.base import Layer
from keras_vit.layers.convolution import (
    BIT,
    HYBRID,
    NUM_GROUPS,
    Convention,
    check_width,
    group_norm,
    standardized_conv,
)


class Bottleneck(Layer):
    """Base of the two units: three convolutions, their norms, and a projection where needed."""

    convention: Convention

    def __init__(self, filters, strides=1, folded=False, **kwargs):
        super().__init__(**kwargs)
        self.folded = folded
        self.filters = check_width("filters", filters)
        self.strides = check_integer("strides", strides, minimum=1)
        self.conv_1 = self._conv(filters, 1, 1, "conv_1")
        self.conv_2 = self._conv(filters, 3, strides, "conv_2")
        self.conv_3 = self._conv(4 * filters, 1, 1, "conv_3")
        self.conv_proj = None
        self.norm_1 = self._norm("norm_1")
        self.norm_2 = self._norm("norm_2")

    def _conv(self, filters, kernel_size, strides, name):
        options = {"folded": self.folded, **self.part_options()}
        return standardized_conv(
            self.convention, filters, kernel_size, strides, name=name, **options
        )

    def _norm(self, name, **options):
        return group_norm(self.convention, name=name, **self.part_options(), **options)

    def build(self, input_shape):
        if len(input_shape) != 4 or input_shape[-1] is None or input_shape[-1] % NUM_GROUPS:
            raise ValueError(
                f"`{type(self).__name__}` takes maps `(batch, height, width, channels)` of a "
                f"multiple of {NUM_GROUPS} channels. Received: input_shape={tuple(input_shape)}"
            )
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

    Input: `(batch, height, width, channels)`. Output: height and width divided by the stride,
    and `4 * filters` channels.

    Args:
        filters: channels of the 3 x 3 convolution, a multiple of 32.
        strides: stride of the 3 x 3 convolution.
        folded: see `StandardizedConv2D`.

    Raises:
        ValueError: if `filters` is not a multiple of 32, or `strides` not a positive integer.

    Reference:
        `ResidualUnit` in `vit_jax/models_resnet.py`; "Deep Residual Learning for Image Recognition"
        (arXiv 1512.03385) with GroupNorm and weight standardization.

    Example:
    >>> tuple(BottleneckUnit(32, strides=2)(np.ones((1, 8, 8, 64))).shape)
    (1, 4, 4, 128)
    """

    convention = HYBRID

    def __init__(
        self, filters: int, strides: int | tuple[int, int] = 1, folded: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(filters, strides, folded, **kwargs)
        # The unit starts as its shortcut.
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
    """Residual unit of BiT, a ResNet-v2: norm and ReLU come before each convolution.

    Input: `(batch, height, width, channels)`, channels a multiple of 32. Output: height and
    width divided by the stride, and `4 * filters` channels.

    Args:
        filters: channels of the 3 x 3 convolution, a multiple of 32.
        strides: stride of the 3 x 3 convolution.
        folded: see `StandardizedConv2D`.

    Raises:
        ValueError: if `filters` is not a multiple of 32, or `strides` not a positive integer.

    Reference:
        `ResidualUnit` in `bit_jax/models.py` of google-research/big_transfer; "Identity Mappings in
        Deep Residual Networks" (arXiv 1603.05027); Big Transfer (arXiv 1912.11370).

    Example:
    >>> tuple(PreActivationBottleneckUnit(32, strides=2)(np.ones((1, 8, 8, 64))).shape)
    (1, 4, 4, 128)
    """

    convention = BIT

    def __init__(
        self, filters: int, strides: int | tuple[int, int] = 1, folded: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(filters, strides, folded, **kwargs)
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
