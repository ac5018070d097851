"""Low-rank adaptation (LoRA) of a Vision Transformer's projections and MLPs."""

import logging
import math
from collections.abc import Sequence

import keras

from keras_vit.core.arguments import check_integer, is_number, names_nearest
from keras_vit.layers.base import set_trainable
from keras_vit.layers.projection import LORA_KERNELS
from keras_vit.models.kernels.plain import flat_parts, plain
from keras_vit.models.parts import HEAD_LAYERS, find_blocks


@names_nearest
def enable_lora(
    model: keras.Model, rank: int, alpha: float | None = None, layers: Sequence[str] | None = None
) -> None:
    """Add trainable low-rank matrices to the kernels of blocks, and freeze all but the head.

    A kernel `W` becomes `W + alpha / rank * A B`. `B` is zero at the start. The model is changed in
    place: compile it after this call. The kernels may be quantized before or afterwards (QLoRA).
    `.keras` files keep `W`, `A` and `B`. Functions that return another model, write another format
    or export the model merge them first, as `merge_lora` does.

    Args:
        model: a Vision Transformer of this package.
        rank: number of columns of `A` and of rows of `B`.
        alpha: a positive number; `None` for `rank`.
        layers: names of the layers of a block that get LoRA, of `"query"`, `"key"`, `"value"`,
            `"output"` (of the attention), `"dense_0"`, `"dense_1"`, in a gated MLP `"gate"`, `"up"`
            and `"down"`; `None` for all.

    Raises:
        ValueError: if the model has no blocks, has LoRA already or computes in float8, or an
            argument is out of range.

    Reference:
        LoRA (arXiv 2106.09685), QLoRA (arXiv 2305.14314).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.enable_lora(model, rank=4, layers=("query", "value"))
    >>> sum(math.prod(weight.shape) for weight in model.trainable_weights)
    37443
    """
    found = [part for block in find_blocks(model) for part in flat_parts(block)]
    rank, names = check_integer("rank", rank, 1), list(dict.fromkeys(p.name for p in found))
    if alpha is not None and not (is_number(alpha) and alpha > 0):
        raise ValueError(f"`alpha` must be a positive number. Received: alpha={alpha!r}")
    layers = names if layers is None else layers
    if isinstance(layers, str) or not layers or not set(layers) <= set(names):
        raise ValueError(
            f"`layers` must be names of {', '.join(names)}. Received: layers={layers!r}"
        )
    found = [part for part in found if part.name in layers]
    if lora_parts(model) or any(part.quantization_mode == "float8" for part in found):
        kind = "LoRA" if lora_parts(model) else "kernels in float8"
        raise ValueError(f"`model` must have no LoRA and no float8. Received: a model with {kind}")
    shapes = [(part.kernel.shape, part.num_summed) for part in found]
    largest = min(math.prod(side) for shape, n in shapes for side in (shape[:n], shape[n:]))
    if rank > largest:
        raise ValueError(
            f"`rank` must be at most {largest}, the smaller side of a kernel. Received: rank={rank}"
        )
    for part in found:
        part.enable_lora(rank, lora_alpha=alpha)
    warn_if_compiled(model)
    freeze_base(model)
    model.train_function = model.test_function = model.predict_function = None


def merge_lora(model: keras.Model) -> keras.Model:
    """Return a plain model of the same function, whose float kernels contain the product of LoRA.

    Args:
        model: a model of `enable_lora`, built, tuned or reloaded; it does not change.

    Returns:
        A model of the class of the given one, not compiled, all of whose layers are trained.

    Raises:
        ValueError: if the model has no LoRA.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.enable_lora(model, rank=4)
    >>> len(keras_vit.merge_lora(model).weights) == len(model.weights) - 12 * 6 * 2
    True
    """
    lora_parts(model, required=True)
    return plain(model)


def lora_parts(model, required=False):
    """Return the layers with LoRA, at any depth of a layer or a model."""
    found = [part for part in flat_parts(model) if part.lora_rank]
    if required and not found:
        name = getattr(model, "name", model)
        raise ValueError(
            f"`model` must have LoRA, see `keras_vit.enable_lora`. Received: {name!r} without it"
        )
    return found


def warn_if_compiled(model):
    """Log that a compiled model goes on to train the same variables as before."""
    if getattr(model, "compiled", False):
        logging.getLogger("keras_vit").warning(
            "compile the model again: until then it trains the variables that it trained before"
        )


def freeze_base(model):
    """Train only the matrices of LoRA, if there are any, and the head."""
    set_trainable(model, True)
    for layer in model.layers:
        has_lora = lora_parts(layer)
        if layer.name not in HEAD_LAYERS and not has_lora:
            set_trainable(layer, False)
        for weight in layer.weights if has_lora else ():
            weight.trainable = weight.name in LORA_KERNELS
