"""Models with quantized kernels."""

import keras

from keras_vit.core.arguments import check_choice
from keras_vit.core.choices import QUANTIZATIONS
from keras_vit.layers.base import change_kernel
from keras_vit.models.kernels.lora import lora_parts
from keras_vit.models.kernels.plain import copy_of, flat_parts


def quantize(model: keras.Model, mode: str) -> keras.Model:
    """Return a copy of a model whose projections and MLPs have quantized kernels.

    The patch projection, the norms and the head stay float. `.keras` files keep quantized models
    bit for bit. Functions that return another model, write another format or export the model use
    float kernels of the quantized values.

    Args:
        model: a model of this package with blocks, also with LoRA; it does not change.
        mode: as in `keras.Model.quantize`: `"int8"` (kernels and inputs), `"int4"` (kernels, with
            a scale per 128 rows) or `"float8"` (float32 kernels, which each call rounds to 8 bits
            by scales that training updates: for accelerators, it saves no memory).

    Returns:
        A model of the class of the given one, not compiled.

    Raises:
        ValueError: if `mode` is unknown, or the model has no such layers, is quantized already, or
            has LoRA and is to compute in float8.

    Example:
    >>> model = keras_vit.vision_transformer(4, 32, 1, 2, 64, num_classes=3, image_size=16)
    >>> keras_vit.quantize(model, "int8").get_layer("block_0").mlp.dense_0.kernel.dtype
    'int8'
    """
    check_choice("mode", mode, QUANTIZATIONS)
    modes = {part.quantization_mode for part in flat_parts(model)}
    if modes != {None} or (mode == "float8" and lora_parts(model)):
        kind = f"in {modes.pop()}" if modes - {None} else "with LoRA" if modes else "without blocks"
        raise ValueError(
            "`model` must have blocks, not be quantized, and have no LoRA for float8. "
            f"Received: a model {kind}, mode={mode!r}"
        )
    copy = copy_of(model)
    for part in flat_parts(copy):
        change_kernel(part, mode)
    return copy
