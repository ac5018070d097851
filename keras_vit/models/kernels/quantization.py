"""Models with quantized kernels."""

from keras_vit.core.arguments import check_choice
from keras_vit.layers.base import change_kernel, parts
from keras_vit.layers.projection import Flat
from keras_vit.models.kernels.lora import has_lora
from keras_vit.models.kernels.plain import exact_copy

MODES = ("int8", "int4", "float8")


def quantize(model, mode):
    """Return a copy of a model whose projections and MLPs have quantized kernels.

    The patch projection, the norms and the head stay as they are. `.keras` files keep quantized
    models bit for bit. Functions that make another model, write another format or export the model
    use the float kernels that the quantized ones stand for.

    Args:
        model: a model of this package with Transformer blocks or attention pooling, also with LoRA;
            it does not change.
        mode: mode of `keras.Model.quantize`: `"int8"` (kernels and inputs in 8 bits, one scale per
            output), `"int4"` (kernels in 4 bits, one scale per 128 inputs and output) or `"float8"`
            (float32 kernels that are rounded to 8 bits in each call, with scales that training
            updates: for training on accelerators, it saves no memory).

    Returns:
        A model of the class of the given one, not compiled.

    Raises:
        ValueError: if `mode` is unknown, the model is quantized already, has no such layers, or has
            LoRA and is to compute in float8.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.quantize(model, "int8").get_layer("block_0").mlp.dense_0.kernel.dtype
    'int8'
    """
    check_choice("mode", mode, MODES)
    found = _dense(model)
    modes = {part.quantization_mode for part in found}
    if modes != {None} or (mode == "float8" and has_lora(model)):
        raise ValueError(
            "`model` must have Transformer blocks that are not quantized, and no LoRA for float8. "
            f"Received: mode={mode!r} for the model {getattr(model, 'name', model)!r}, "
            f"{'with LoRA' if modes == {None} else f'in {modes.pop()}' if modes else 'a ResNet'}"
        )
    copy = exact_copy(model)
    for part in _dense(copy):
        change_kernel(part, mode)
    return copy


def _dense(model):
    layers = getattr(model, "layers", ())
    return [part for layer in layers for part in parts(layer) if isinstance(part, Flat)]
