"""Dense layers over rows, the tokens of all images as one matrix.

TensorFlow fuses a product, its bias and a GELU if both factors are matrices.
"""

import keras
from keras import ops

# Names of the two matrices whose product LoRA adds to a kernel.
LORA_KERNELS = ("lora_kernel_a", "lora_kernel_b")


@keras.saving.register_keras_serializable("keras_vit")
class Dense(keras.layers.Dense):
    """Keras's Dense layer without activation, with LoRA whose matrices stay apart from the kernel.

    Keras's own LoRA merges them when it saves the layer, after which they are zero and never learn
    again. It rounds the sum of kernel and product in half precision, and computes the gradient of
    the whole kernel.

    Input: `(rows, width)`. Output: `(rows, units)`.

    Args:
        units: width of the output.
        **kwargs: as in `keras.layers.Dense`. With a `lora_rank` the kernel is frozen, and
            `lora_alpha / lora_rank` times the product of `lora_kernel_a` and `lora_kernel_b` is
            added to it.

    Reference:
        LoRA (arXiv 2106.09685).

    Example:
    >>> from keras_vit.layers.dense import Dense
    >>> layer = Dense(8, lora_rank=2)
    >>> tuple(layer(np.ones((5, 4))).shape), len(layer.trainable_weights)
    ((5, 8), 3)
    """

    def enable_lora(self, rank, a_initializer="he_uniform", b_initializer="zeros"):
        """Add the two matrices; Keras calls this at the end of `build`, if there is a rank."""
        shapes = (self.kernel.shape[0], rank), (rank, self.units)
        for name, *arguments in zip(
            LORA_KERNELS, shapes, (a_initializer, b_initializer), strict=True
        ):
            setattr(self, name, self.add_weight(*arguments, dtype="float32", name=name))
        self.kernel.trainable = False

    def call(self, inputs, training=None):
        return self._adapted(super().call(inputs, training=training), inputs)

    def quantize(self, mode=None, type_check=True, **kwargs):
        # Keras refuses subclasses, as their `call` may be another function of the kernel.
        super().quantize(mode, type_check=False, **kwargs)

    def quantized_call(self, inputs, *args, **kwargs):
        return self._adapted(super().quantized_call(inputs, *args, **kwargs), inputs)

    def _adapted(self, outputs, inputs):
        """Add the product with the matrices of LoRA, if there are any."""
        if not self.lora_rank:
            return outputs
        a, b = (ops.cast(getattr(self, name), self.compute_dtype) for name in LORA_KERNELS)
        product = ops.matmul(ops.matmul(inputs, a), b)
        return outputs + product * (self.lora_alpha / self.lora_rank)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        for name in LORA_KERNELS if self.lora_rank else ():
            store[name] = getattr(self, name)

    def load_own_variables(self, store):
        super().load_own_variables(store)
        for name in LORA_KERNELS if self.lora_rank else ():
            getattr(self, name).assign(store[name])


def as_rows(tokens):
    """Return tokens `(batch, tokens, width)` as one matrix, a row per token."""
    return ops.reshape(tokens, (-1, tokens.shape[-1]))
