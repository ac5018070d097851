"""Low-rank adaptation (LoRA) of a Vision Transformer's projections and MLPs, and quantization."""

from collections.abc import Sequence

import keras

from keras_vit.layers.layer import quantize_layer
from keras_vit.models.image_model import copy_attributes
from keras_vit.models.structure import find_blocks
from keras_vit.models.surgery import (
    copy_layer,
    copy_model,
    dense_layers,
    freeze_base,
    lora_layers,
    with_float_kernels,
)


def enable_lora(
    model: keras.Model, rank: int, alpha: float | None = None, layers: Sequence[str] | None = None
) -> keras.Model:
    """Return a copy of a model with LoRA, which trains low-rank matrices and the head.

    A kernel `W` becomes `W + alpha / rank * A B`. `B` is zero at the start. All variables except
    `A`, `B` and the head are frozen. The kernels may be quantized before or afterwards (QLoRA).
    `.keras` files keep `W`, `A` and `B`. Functions that return another model, write another format
    or export the model first merge `A` and `B` into `W`, as `merge_lora` does.

    Args:
        model: a Vision Transformer of this package; it does not change.
        rank: number of columns of `A` and of rows of `B`.
        alpha: a positive number; `None` for `rank`.
        layers: names of the layers in each block that get LoRA; `None` for all of `"query"`,
            `"key"`, `"value"`, `"output"` (of the attention), `"dense_0"` and `"dense_1"`, or in a
            gated MLP `"gate"`, `"up"` and `"down"`.

    Returns:
        A model of the class of `model`, not compiled.

    Raises:
        ValueError: if the model has no blocks, has LoRA already or computes in float8, or `layers`
            has unknown names.

    Reference:
        LoRA (arXiv 2106.09685), QLoRA (arXiv 2305.14314).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> model = keras_vit.enable_lora(model, rank=4, layers=("query", "value"))
    >>> sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    37443
    """
    dense = [layer for block in find_blocks(model) for layer in dense_layers(block)]
    names = list(dict.fromkeys(layer.name for layer in dense))
    layers = names if layers is None else list(layers)
    if not layers or not set(layers) <= set(names):
        raise ValueError(
            f"`layers` must be names of {', '.join(names)}. Received: layers={layers!r}"
        )
    if lora_layers(model) or any(layer.quantization_mode == "float8" for layer in dense):
        raise ValueError("`model` must have no LoRA and no float8. Received: a model with either")
    blocks = [block.name for block in find_blocks(model)]
    lora = dict.fromkeys(layers, (rank, rank if alpha is None else alpha))

    def layer(old):
        return copy_layer(old, **({"lora": lora} if old.name in blocks else {}))

    new = copy_model(model, layer)
    copy_attributes(model, new)
    freeze_base(new)
    return new


def merge_lora(model: keras.Model) -> keras.Model:
    """Return an equivalent model without LoRA, whose float kernels contain the product of LoRA.

    Args:
        model: a model from `enable_lora`, new, trained or loaded; it does not change.

    Returns:
        A model of the class of `model`, not compiled, with all layers trainable. If `model` has
        neither LoRA nor quantized kernels, `model` itself is returned.

    Example:
    >>> model = keras_vit.enable_lora(keras_vit.ViT_Ti16(num_classes=3, image_size=32), rank=4)
    >>> len(keras_vit.merge_lora(model).weights) == len(model.weights) - 12 * 6 * 2
    True
    """
    return with_float_kernels(model)


def quantize(model: keras.Model, mode: str) -> keras.Model:
    """Return a copy of a model whose projections and MLPs have quantized kernels.

    The patch projection, the norms and the head stay float. `.keras` files keep quantized models
    bit for bit. Functions that return another model, write another format or export the model first
    convert the quantized kernels to float.

    Args:
        model: a model of this package with blocks, with or without LoRA; it does not change.
        mode: as in `keras.Model.quantize`: `"int8"` (kernels and inputs), `"int4"` (kernels, with
            a scale per 128 rows) or `"float8"` (kernels are stored in float32, and each call rounds
            them to 8 bits with scales that training updates; it is meant for accelerators, and
            saves no memory).

    Returns:
        A model of the class of `model`, not compiled.

    Raises:
        ValueError: if `mode` is unknown or is `"float8"` for a model with LoRA, or the model has no
            Transformer blocks or is already quantized.

    Example:
    >>> model = keras_vit.vision_transformer(4, 32, 1, 2, 64, num_classes=3, image_size=16)
    >>> keras_vit.quantize(model, "int8").get_layer("block_0").mlp.dense_0.kernel.dtype
    'int8'
    """
    modes = {part.quantization_mode for part in dense_layers(model)}
    if modes != {None} or (mode == "float8" and lora_layers(model)):
        raise ValueError(
            "`model` must have blocks, not be quantized, and have no LoRA for float8. "
            f"Received: a model with kernels in {modes or 'no blocks'}, mode={mode!r}"
        )
    new = copy_model(model)
    copy_attributes(model, new)
    for part in dense_layers(new):
        quantize_layer(part, mode)
    return new
