"""Copies of models for inference: standardized and cast weights, no unused tokens."""

import keras
from keras import ops

from keras_vit.layers.bottleneck import Bottleneck, StandardizedConv2D
from keras_vit.layers.layer import RecordsFrozenOrQuantized, all_layers
from keras_vit.models.image_model import copy_attributes
from keras_vit.models.structure import named_weights
from keras_vit.models.surgery import (
    copy_layer,
    copy_model,
    dense_layers,
    float_kernels,
    with_float_kernels,
)
from keras_vit.models.unused_tokens import without_unused_tokens

# Layers that compute with float32 weights under a mixed policy.
NORMS = (keras.layers.LayerNormalization, keras.layers.GroupNormalization)


def for_inference(model: keras.Model, casting: bool = True) -> keras.Model:
    """Return an equivalent model that computes less in each call.

    The new model stores standardized kernels of convolutions, and kernels merged with LoRA. If the
    model is pooled by its class token, the last block computes only that token. Save `model`, not
    the new model, which is not the same after loading: norms inside a layer would then have the
    dtype policy of that layer.

    Args:
        model: a Functional model; it does not change.
        casting: whether layers with a policy such as `"mixed_bfloat16"` store their weights in half
            precision, except norms. If true, a quantized model keeps its kernels. If false, they
            become float32.

    Returns:
        `model` itself if nothing changes. Otherwise a new model: with copies of the current weights
        if some are stored in another form, else with the layers of `model`.

    Example:
    >>> model = keras_vit.resnet((1,), 32, num_classes=2, image_size=32)
    >>> keras_vit.for_inference(model).get_layer("root_conv").folded
    True
    """
    return without_unused_tokens(_with_stored_weights(model, casting))


def _with_stored_weights(model, casting):
    if casting and any(part.quantization_mode for part in dense_layers(model)):
        return model
    model = with_float_kernels(model)
    changes = {layer.name: _changes(layer, casting) for layer in model.layers}
    if not any(changes.values()):
        return model

    def layer(old):
        new = copy_layer(old, **changes[old.name])
        for part in all_layers(new):
            if isinstance(part, NORMS):
                part.dtype_policy = old.dtype_policy
        return new

    new = copy_model(model, layer, values=_standardized(model))
    copy_attributes(model, new)
    return new


def update_inference_copy(model, copy):
    """Assign the current weights of a model to the copy that `for_inference` returned."""
    named = named_weights(model)
    copies = {name: v for name, v in named_weights(copy).items() if v is not named[name]}
    values = _standardized(model) | float_kernels(model) if copies else {}
    for name, variable in copies.items():
        source = named[name]
        # Copied, because a training step on JAX deletes the buffers of `model`.
        variable.assign(ops.copy(values.get(source.path, source.value)))


def _changes(layer, casting):
    """Return the constructor arguments of a layer that are different in the copy."""
    if not isinstance(layer, RecordsFrozenOrQuantized) or not layer.weights:
        return {}
    folded = {"folded": True} if getattr(layer, "folded", None) is False else {}
    # A `Bottleneck` makes the norm of its projection in `build`, too late to change its policy.
    is_cast = casting and layer.compute_dtype != "float32" and not isinstance(layer, Bottleneck)
    is_mixed = is_cast and layer.variable_dtype == "float32"
    return {**folded, **({"dtype": layer.compute_dtype} if is_mixed else {})}


def _standardized(model):
    """Return the standardized kernels of convolutions by path."""
    return {
        part.kernel.path: part.standardize(part.kernel)
        for part in all_layers(model)
        if isinstance(part, StandardizedConv2D) and not part.folded
    }
