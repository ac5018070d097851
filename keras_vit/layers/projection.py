"""Dense layers over tokens, in the form that the backends fuse.

TensorFlow fuses a product, its bias and a GELU if both factors are matrices. torch fuses a product
and its bias. Keras's layers multiply three-dimensional tokens, and TensorFlow does not compute
their einsum over several heads as a product of matrices. On CPUs torch multiplies matrices in
float32 with MKL, which takes twice as long as oneDNN on AMD's processors; without gradients, oneDNN
computes the product, its bias and a GELU as one operation.
"""

import functools
import math
import pathlib
import platform

import keras
from keras import ops

from keras_vit.core.arguments import check_choice
from keras_vit.layers.activations import fuse, gelu_tanh

# Equations of `keras.layers.EinsumDense`.
TO_HEADS = "btw,whd->bthd"
FROM_HEADS = "bqhd,hdw->bqw"
# Names of the two matrices whose product LoRA adds to a kernel.
LORA_KERNELS = ("lora_kernel_a", "lora_kernel_b")
# With so many rows or more, torch's convolution is faster than its product on CPUs.
MANY_ROWS = 128
# What oneDNN calls the activations that it fuses with a product.
ONEDNN_GELUS = {gelu_tanh: "tanh", keras.activations.gelu: "none"}


class Flat:
    """Mixin for Keras's dense layers: computes them as products of two matrices."""

    # Axes of the inputs, and of the kernel, over which the product sums.
    num_summed = 1

    def call(self, inputs, training=None):
        return self._adapted(self._product(inputs, training), inputs)

    def quantized_call(self, *args, **kwargs):
        return self._adapted(super().quantized_call(*args, **kwargs), args[0])

    def _product(self, inputs, training):
        kernel = self.kernel
        width = math.prod(kernel.shape[: self.num_summed])
        rows = ops.reshape(inputs, (-1, width))
        bias = None if self.bias is None else ops.reshape(self.bias, (-1,))
        matrix = ops.reshape(kernel, (width, -1))
        if self.activation is None:
            outputs = affine(rows, matrix, bias)
        elif self.activation in ONEDNN_GELUS and fuses_gelu(rows):
            outputs = onednn_linear(rows, matrix, bias, ONEDNN_GELUS[self.activation])
        else:
            activation = fuse(self.activation) if training else self.activation
            outputs = activation(affine(rows, matrix, bias))
        tokens = ops.shape(inputs)[1 : len(inputs.shape) - self.num_summed]
        return ops.reshape(outputs, (-1, *tokens, *kernel.shape[self.num_summed :]))

    def quantize(self, mode=None, type_check=True, **kwargs):
        # Keras refuses subclasses unless `type_check` is false, as their `call` may be another
        # function; this one is the same.
        super().quantize(mode, type_check=False, **kwargs)

    def enable_lora(self, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
        """Freeze the kernel, and add a trainable product of two matrices to it.

        Keras's own LoRA has one matrix `A` per head, which is not the LoRA of other packages. It
        saves the sum of kernel and product, which rounds a quantized kernel once more.
        """
        if hasattr(self, "lora_kernel_a"):
            raise ValueError(f"`enable_lora` can be called once per layer. Received: {self.path}")
        shape = self.kernel.shape
        shapes = (*shape[: self.num_summed], rank), (rank, *shape[self.num_summed :])
        # As in Keras, which locks the variables of a layer that is built.
        self._tracker.unlock()
        for name, *arguments in zip(
            LORA_KERNELS, shapes, (a_initializer, b_initializer), strict=True
        ):
            setattr(self, name, self.add_weight(*arguments, dtype="float32", name=name))
        self._tracker.lock()
        self._kernel.trainable = False
        self.lora_rank, self.lora_alpha = rank, rank if lora_alpha is None else lora_alpha
        # It applies to the sum, and Keras's functions of a quantized layer return one term.
        self.lora_activation, self.activation = self.activation, None

    def _adapted(self, outputs, inputs):
        """Add the product of LoRA, if there is one, to the product with the kernel."""
        if self.lora_rank is None:
            return outputs
        a, b = (ops.cast(v, self.compute_dtype) for v in (self.lora_kernel_a, self.lora_kernel_b))
        rows = ops.reshape(inputs, (-1, math.prod(a.shape[:-1])))
        rows = ops.matmul(rows, ops.reshape(a, (-1, self.lora_rank)))
        rows = ops.matmul(rows, ops.reshape(b, (self.lora_rank, -1)))
        scaled = ops.reshape(rows, ops.shape(outputs)) * (self.lora_alpha / self.lora_rank)
        return (self.lora_activation or keras.activations.linear)(outputs + scaled)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        for name in LORA_KERNELS if self.lora_rank is not None else ():
            store[name] = getattr(self, name)

    def load_own_variables(self, store):
        super().load_own_variables(store)
        for name in LORA_KERNELS if self.lora_rank is not None else ():
            getattr(self, name).assign(store[name])


@keras.saving.register_keras_serializable("keras_vit")
class Dense(Flat, keras.layers.Dense):
    """Keras's Dense layer, computed as a product of two matrices.

    Input: `(batch, ..., width)`. Output: `(batch, ..., units)`.

    Example:
    >>> from keras_vit.layers.projection import Dense
    >>> tuple(Dense(8)(np.ones((2, 5, 4))).shape)
    (2, 5, 8)
    """


@keras.saving.register_keras_serializable("keras_vit")
class HeadsDense(Flat, keras.layers.EinsumDense):
    """Keras's EinsumDense layer from tokens to heads, or from heads to tokens.

    Input: `(batch, tokens, width)`. Output: `(batch, tokens, heads, head_dim)`. With `FROM_HEADS`
    it is the reverse.

    Args:
        equation: `TO_HEADS` or `FROM_HEADS`.
        output_shape: as for `keras.layers.EinsumDense`.

    Raises:
        ValueError: if `equation` is another one.

    Example:
    >>> from keras_vit.layers.projection import TO_HEADS, HeadsDense
    >>> tuple(HeadsDense(TO_HEADS, (None, 2, 4), bias_axes="hd")(np.ones((2, 5, 8))).shape)
    (2, 5, 2, 4)
    """

    def __init__(self, equation, output_shape, **kwargs):
        check_choice("equation", equation, (TO_HEADS, FROM_HEADS))
        super().__init__(equation, output_shape, **kwargs)

    @property
    def num_summed(self):
        return 2 if self.equation == FROM_HEADS else 1

    def _product(self, inputs, training):
        if keras.backend.backend() == "torch" and not is_convolved(inputs):
            # As fast as `addmm`, which rounds otherwise: the test run of the original's training
            # steps would differ in the fifth digit.
            return keras.layers.EinsumDense.call(self, inputs, training=training)
        return super()._product(inputs, training)


def affine(rows, kernel, bias):
    """Return `rows @ kernel + bias`, of two matrices and a vector; `bias` may be `None`."""
    if keras.backend.backend() == "torch":
        return _affine_torch(rows, kernel, bias)
    products = ops.matmul(rows, kernel)
    return products if bias is None else ops.add(products, bias)


def _affine_torch(rows, kernel, bias):
    import torch

    if is_convolved(rows[:, None]):
        if not torch.is_grad_enabled():
            return onednn_linear(rows, kernel, bias)
        # The kernel is convolved with filters of size 1, which are the rows: oneDNN computes that,
        # and its gradients.
        products = torch.nn.functional.conv1d(kernel[None], rows[:, :, None])[0]
        return products if bias is None else products.add_(bias)
    return torch.mm(rows, kernel) if bias is None else torch.addmm(bias, rows, kernel)


def onednn_linear(rows, kernel, bias, gelu=None):
    """Return `rows @ kernel + bias`, or its GELU, by one operation of oneDNN on CPUs.

    It is what `torch.compile` makes of the two, without gradients.
    """
    import torch

    linear = torch.ops.mkldnn._linear_pointwise
    return linear(rows, kernel.T, bias, "none" if gelu is None else "gelu", [], gelu or "")


def fuses_gelu(rows):
    """Whether torch computes the product of such rows and its GELU at once."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    if torch.is_grad_enabled():
        return False
    if rows.dtype != torch.bfloat16:
        return is_convolved(rows[:, None])
    has_onednn = torch.backends.mkldnn.is_available()
    return (
        has_onednn
        and _is_large_on_cpu(rows[:, None])
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def is_convolved(tokens):
    """Whether torch multiplies such tokens `(batch, tokens, ...)` by oneDNN's convolution."""
    import torch

    return tokens.dtype == torch.float32 and _is_large_on_cpu(tokens) and _has_slow_mkl()


def _is_large_on_cpu(tokens):
    import torch

    # Exported graphs keep a plain product.
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return tokens.device.type == "cpu" and tokens.shape[0] * tokens.shape[1] >= MANY_ROWS


@functools.cache
def _has_slow_mkl():
    import torch

    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    processor = cpuinfo.read_text() if cpuinfo.is_file() else platform.processor()
    return "AuthenticAMD" in processor
