"""Copies of models, and their plain form, without LoRA and quantization."""

import keras
from keras import ops

from keras_vit.layers.base import parts
from keras_vit.layers.projection import Flat
from keras_vit.models.calls.origin import origin_of, set_origin


def flat_parts(model):
    """Return the projections and MLP layers of a layer or a model, at any depth."""
    layers = parts(model) if hasattr(model, "weights") else ()
    return [part for part in layers if isinstance(part, Flat)]


def plain(model):
    """Return a model without LoRA and with float kernels; itself, or else a new one.

    All layers of a new model are trained. The given model does not change.
    """
    is_model = isinstance(model, keras.Model)
    changed = [part for part in parts(model) if _is_changed(part)] if is_model else []
    if not changed:
        return model
    return copy_of(model, {f"{part.path}/kernel": plain_kernel(part) for part in changed})


def copy_of(model, kernels=None):
    """Copy a model, with LoRA, quantization and what is frozen; or with other, plain kernels."""
    config = model.get_config()
    for layer, stored in zip(model.layers, config["layers"], strict=True) if kernels else ():
        stored["build_config"] = {
            name: value
            for name, value in (stored.get("build_config") or {}).items()
            if name not in ("kernels", "frozen")
        }
        stored["config"]["trainable"] = True
        if layer.quantization_mode:
            stored["config"]["dtype"] = layer.dtype_policy.name.rpartition("_from_")[2]
    copy = type(model).from_config(config)
    values = {variable.path: variable for variable in model.weights}
    for variable in copy.weights:
        value = (kernels or {}).get(variable.path)
        # Not shared: JAX deletes the buffers of a model in training.
        variable.assign(ops.copy(values[variable.path].value) if value is None else value)
    set_origin(copy, origin_of(model))
    return copy


def plain_kernel(layer):
    """Return the float kernel with which a dense layer computes the same without its changes."""
    kernel = base_kernel(layer)
    if isinstance(layer, Flat) and layer.lora_rank:
        product = ops.tensordot(layer.lora_kernel_a, layer.lora_kernel_b, axes=1)
        kernel = ops.cast(kernel, "float32") + product * (layer.lora_alpha / layer.lora_rank)
    return kernel


def base_kernel(layer):
    """Return the kernel of a dense layer as floats, without LoRA."""
    kernel, mode = layer.kernel, layer.quantization_mode
    shape, num_summed = kernel.shape, getattr(layer, "num_summed", 1)
    if mode not in (None, "int8", "int4", "float8"):
        raise ValueError(f"`model` must be float, int8, int4 or float8. Received: {mode}")
    if mode in ("int8", "int4"):
        kernel = ops.cast(kernel, "float32")
        if getattr(layer, "kernel_zero", None) is None:
            kernel = kernel / ops.reshape(layer.kernel_scale, shape[num_summed:])
        else:
            # Groups of rows have scales and zeros of their own.
            groups = ops.cast(layer.g_idx, "int32")
            scale, zero = (
                ops.reshape(ops.take(ops.cast(values, "float32"), groups, axis=0), shape)
                for values in (layer.kernel_scale, layer.kernel_zero)
            )
            kernel = (kernel - zero) * scale
    return kernel


def _is_changed(part):
    is_dense = isinstance(part, (keras.layers.Dense, keras.layers.EinsumDense))
    return is_dense and bool(part.quantization_mode or (isinstance(part, Flat) and part.lora_rank))
