"""Models for inference, whose weights are standardized and cast once instead of in each call."""

import contextlib

import keras

from keras_vit.layers.base import KeepsFrozen, parts
from keras_vit.layers.convolution import StandardizedConv2D
from keras_vit.layers.resnet import Bottleneck

# Under a mixed policy they compute with their weights in float32.
NORMS = (keras.layers.LayerNormalization, keras.layers.GroupNormalization)


def fold(model, sharing=False, casting=False):
    """Return a model of the same function, for inference, that stores its kernels standardized.

    Without `sharing` it stores them without LoRA and quantization too; with `casting` a quantized
    model is returned as it is.

    Args:
        model: a Functional model.
        sharing: whether the returned model shares with `model` all layers that it does not change.
            Then it is for `predict` only: the symbolic tensors of its layers are those of `model`,
            and each shared layer gets one more inbound node.
        casting: whether layers of a policy such as `"mixed_bfloat16"` store their weights in half
            precision too, except norms.

    Returns:
        `model` itself if there is nothing to change. Otherwise a model with the weights that
        `model` has now.

    Example:
    >>> from keras_vit.models.kernels.folding import fold
    >>> model = keras_vit.resnet((1,), 32, num_classes=2, image_size=32)
    >>> fold(model).get_layer("root_conv").folded
    True
    """
    if not sharing:
        # That module imports this one.
        from keras_vit.models.kernels.plain import plain

        if casting and any(part.quantization_mode for part in parts(model)):
            return model
        model = plain(model)
    is_cast = {layer.name: casting and _is_cast(layer) for layer in model.layers}
    if not any(_convolutions(model)) and not any(is_cast.values()):
        return model

    def copy(layer):
        changes = {"folded": True} if _is_foldable(layer) else {}
        if is_cast[layer.name]:
            changes["dtype"] = layer.compute_dtype
        if sharing and not changes:
            return layer
        new = type(layer).from_config({**layer.get_config(), **changes})
        for part in parts(new):
            if isinstance(part, NORMS):
                part.dtype_policy = layer.dtype_policy
        return new

    strategy = getattr(model, "distribute_strategy", None)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        folded = keras.models.clone_model(model, clone_function=copy)
    assign_folded(model, folded)
    return folded


def assign_folded(model, folded):
    """Assign the current weights of `model` to `folded`, which `fold` made from it."""
    standardize = {id(layer.kernel): layer.standardize for layer in _convolutions(model)}
    for old, new in zip(model.weights, folded.weights, strict=True):
        if new is old:
            continue
        if id(old) in standardize:
            new.assign(standardize[id(old)](old))
        else:
            # Copied, because a training step on JAX deletes the buffers of `model`.
            new.assign(keras.ops.copy(old.value))


def _is_cast(layer):
    """Whether a layer of this package casts all of its weights to half precision in each call."""
    if not _is_known(layer) or not layer.weights:
        return False
    return layer.compute_dtype in ("bfloat16", "float16") and all(
        # Neither quantized nor with LoRA, which a configuration does not record.
        type(part.dtype_policy) is keras.DTypePolicy
        and part.variable_dtype == "float32"
        and part.compute_dtype == layer.compute_dtype
        and not getattr(part, "lora_rank", None)
        # Some norms of these are made when they are built, too late for another policy.
        and not (getattr(part, "qk_norm", False) or isinstance(part, Bottleneck))
        for part in parts(layer)
    )


def _is_known(layer):
    """Whether the configuration of a layer of this package describes all of its parts."""
    # Users' own layers may compute something else, or not be made from a configuration.
    modules = {type(part).__module__.partition(".")[0] for part in parts(layer)}
    return isinstance(layer, KeepsFrozen) and modules <= {"keras", "keras_vit"}


def _is_foldable(layer):
    return _is_known(layer) and hasattr(layer, "folded")


def _convolutions(model):
    """Return the convolutions of `model` whose kernels are standardized in each call."""
    found = [part for layer in filter(_is_foldable, model.layers) for part in parts(layer)]
    return [part for part in found if isinstance(part, StandardizedConv2D) and not part.folded]
