"""Low-rank adaptation (LoRA) of a Vision Transformer's projections and MLPs."""

import math

from keras_vit.core.arguments import check_integer, is_number
from keras_vit.layers.base import parts, set_trainable
from keras_vit.layers.projection import LORA_KERNELS, Flat
from keras_vit.models.kernels.plain import plain
from keras_vit.models.parts import HEAD_LAYERS, find_blocks


def enable_lora(model, rank, alpha=None, layers=None):
    """Add trainable low-rank matrices to the kernels of all blocks, and freeze all but the head.

    A kernel `W` becomes `W + alpha / rank * A B`. `B` is zero at the start, so the outputs do not
    change. The model is changed in place; compile it after this call. The kernels may be quantized
    to int8 or int4 before or afterwards (QLoRA). `.keras` files keep `W`, `A` and `B`. Functions
    that make another model, write another format or export the model merge them, as `merge_lora`.

    Args:
        model: a Vision Transformer of this package.
        rank: columns of `A` and rows of `B`; at most the smaller side of each kernel.
        alpha: factor of the product, which is divided by `rank`; `None` for `rank`.
        layers: names of the layers of a block that get LoRA, of `"query"`, `"key"`, `"value"`,
            `"output"` (of the attention), `"dense_0"`, `"dense_1"`; in a gated MLP `"gate"`, `"up"`
            and `"down"`. `None` for all of them.

    Raises:
        ValueError: if the model has no blocks, has LoRA already or computes in float8, or an
            argument is out of range.

    Reference:
        LoRA (arXiv 2106.09685), QLoRA (arXiv 2305.14314).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.enable_lora(model, rank=4, layers=("query", "value"))
    >>> model.count_params(), sum(weight.size for weight in model.trainable_weights)
    (5473731, 74307)
    """
    found = [
        part for block in find_blocks(model) for part in parts(block) if isinstance(part, Flat)
    ]
    rank, names = check_integer("rank", rank, 1), list(dict.fromkeys(p.name for p in found))
    if not (alpha is None or (is_number(alpha) and alpha > 0)):
        raise ValueError(f"`alpha` must be a positive number. Received: alpha={alpha!r}")
    if layers is not None:
        if isinstance(layers, str) or not layers or not set(layers) <= set(names):
            raise ValueError(
                f"`layers` must be names of {', '.join(names)}. Received: layers={layers!r}"
            )
        found = [part for part in found if part.name in layers]
    if has_lora(model) or any(part.quantization_mode == "float8" for part in found):
        raise ValueError(
            "`model` must be without LoRA and not in float8. Received: a model with "
            f"{'LoRA' if has_lora(model) else 'kernels in float8'}"
        )
    largest = min(min(_sides(part)) for part in found)
    if rank > largest:
        raise ValueError(
            f"`rank` must be at most {largest}, the smaller side of a kernel. Received: rank={rank}"
        )
    for part in found:
        part.enable_lora(rank, lora_alpha=alpha)
    freeze_base(model)
    model.train_function = model.test_function = model.predict_function = None


def merge_lora(model):
    """Return a plain model of the same function, whose kernels contain the product of LoRA.

    Quantized kernels become float kernels too. All layers of the new model are trained.

    Args:
        model: a model of `enable_lora`, built, tuned or reloaded; it does not change.

    Returns:
        A model of the class of the given one, not compiled.

    Raises:
        ValueError: if the model has no LoRA.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.enable_lora(model, rank=4)
    >>> keras_vit.merge_lora(model).count_params()
    5399427
    """
    if not has_lora(model):
        raise ValueError(
            "`model` must have LoRA, see `keras_vit.enable_lora`. "
            f"Received: the model {getattr(model, 'name', model)!r} without it"
        )
    return plain(model)


def lora_parts(model):
    """Return the layers of a model that have LoRA, at any depth."""
    return [part for part in parts(model) if isinstance(part, Flat) and part.lora_rank]


def has_lora(model):
    """Return whether layers of a model have LoRA."""
    return bool(getattr(model, "layers", None) and lora_parts(model))


def freeze_base(model):
    """Train only the matrices of LoRA and the head."""
    set_trainable(model, True)
    for layer in model.layers:
        if layer.name in HEAD_LAYERS:
            continue
        if lora_parts(layer):
            for weight in layer.weights:
                weight.trainable = weight.name in LORA_KERNELS
        else:
            set_trainable(layer, False)


def _sides(part):
    """Return the two sides of the matrix that a kernel of a layer is."""
    shape, summed = part.kernel.shape, part.num_summed
    return math.prod(shape[:summed]), math.prod(shape[summed:])
