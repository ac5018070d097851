"""Copies of models: exact ones, and plain ones, without LoRA and quantization."""

from keras import ops

from keras_vit.layers.base import KeepsFrozen, changed_kernels, parts
from keras_vit.layers.projection import Flat
from keras_vit.models.base import pass_on
from keras_vit.models.folding import clone


def plain(model):
    """Return a model without LoRA and with float kernels.

    It is the given model if that has neither LoRA nor quantized kernels. Otherwise it is a new one,
    all of whose layers are trained. The given model does not change.
    """
    changed = [part for part in parts(model) if _is_changed(part)]
    if not changed:
        return model

    def copy(layer):
        config = layer.get_config()
        if layer.quantization_mode:
            config["dtype"] = layer.dtype_policy.name.rpartition("_from_")[2]
        if getattr(layer, "lora_rank", None):
            config["lora_rank"] = None
        return type(layer).from_config(config)

    new = clone(model, copy)
    kernels = {f"{part.path}/kernel": plain_kernel(part) for part in changed}
    _assign(model, new, kernels)
    new.trainable = True
    pass_on(model, new)
    return new


def exact_copy(model):
    """Return a copy of a model, with its LoRA, its quantized kernels and what is frozen."""

    def copy(layer):
        new = type(layer).from_config(layer.get_config())
        if isinstance(layer, KeepsFrozen) and layer.weights:
            new.build_from_config(layer.get_build_config())
        return new

    new = clone(model, copy)
    _assign(model, new, {})
    pass_on(model, new)
    return new


def plain_kernel(layer):
    """Return the float kernel with which a dense layer computes the same as plain layer."""
    kernel, mode = layer.kernel, layer.quantization_mode
    shape, num_summed = kernel.shape, getattr(layer, "num_summed", 1)
    if mode not in (None, "int8", "int4", "float8") or (mode and layer.lora_enabled):
        raise ValueError(
            "`model` must have kernels in int8, int4 or float8, and LoRA of `keras_vit.enable_lora`. "
            f"Received: {layer.path} in {mode}, with lora_enabled={layer.lora_enabled}"
        )
    if mode in ("int8", "int4"):
        kernel, scale = ops.cast(kernel, "float32"), layer.kernel_scale
        if getattr(layer, "kernel_zero", None) is None:
            kernel = kernel / ops.reshape(scale, shape[num_summed:])
        else:
            # Groups of rows have scales and zeros of their own.
            groups = ops.cast(layer.g_idx, "int32")
            zero = ops.take(ops.cast(layer.kernel_zero, "float32"), groups, axis=0)
            kernel = kernel - ops.reshape(zero, shape)
            kernel = kernel * ops.reshape(ops.take(scale, groups, axis=0), shape)
    if isinstance(layer, Flat) and layer.lora_rank:
        product = ops.tensordot(layer.lora_kernel_a, layer.lora_kernel_b, axes=1)
        kernel = ops.cast(kernel, "float32") + product * (layer.lora_alpha / layer.lora_rank)
    return kernel


def _is_changed(part):
    return hasattr(part, "kernel") and bool(part.quantization_mode or part_rank(part))


def part_rank(part):
    """Return the rank of LoRA of a layer, `None` without LoRA."""
    return getattr(part, "lora_rank", None)


def _assign(model, new, kernels):
    """Assign the variables of a model to its copy, by their paths, except the given kernels."""
    values = {variable.path: variable for variable in model.weights}
    for variable in new.weights:
        value = kernels.get(variable.path)
        # Not shared: JAX deletes the buffers of a model in training.
        variable.assign(ops.copy(values[variable.path].value) if value is None else value)
