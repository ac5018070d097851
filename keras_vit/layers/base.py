"""Base class of the layers: saves keep arguments, and what is frozen, quantized or has LoRA."""

import gc

import keras

from keras_vit.core.arguments import constructor_arguments


class KeepsFrozen:
    """Mixin for layers that save their arguments, and what is frozen, quantized or has LoRA.

    A `.keras` file stores `trainable` and the dtype policy of a model's layers, but not of their
    sublayers and variables. If one of these differs from its layer, the build configuration of the
    layer lists the frozen parts and the changed kernels.
    """

    def part_options(self):
        """Return the options that a layer passes to each of its sublayers."""
        return {"dtype": self.dtype_policy, "trainable": self.trainable}

    def get_config(self):
        return {**super().get_config(), **constructor_arguments(self)}

    def get_build_config(self):
        config = super().get_build_config()
        kernels = changed_kernels(self) if config else {}
        if kernels:
            config = {**config, "kernels": kernels}
        parts = [*_sublayers(self).values(), *_variables(self).values()]
        if config is None or all(part.trainable == self.trainable for part in parts):
            return config
        return {**config, "frozen": frozen_parts(self)}

    def build_from_config(self, config):
        super().build_from_config(config)
        for path, changes in config.get("kernels", {}).items():
            change_kernel(_sublayers(self)[path], *changes)
        if "frozen" in config:
            freeze_parts(self, config["frozen"])


def changed_kernels(layer):
    """Return the arguments of `change_kernel` by the relative paths of the changed sublayers."""
    found = {}
    for path, part in _sublayers(layer).items():
        mode, rank = part.quantization_mode, getattr(part, "lora_rank", None)
        config = mode and getattr(part, "quantization_config", None)
        config = config and keras.saving.serialize_keras_object(config)
        if mode or rank:
            found[path] = [mode, config, rank, part.lora_alpha]
    return found


def change_kernel(layer, mode, config=None, rank=None, alpha=None):
    """Quantize the kernel of a built layer in a mode of Keras, and add LoRA of a rank to it."""
    if mode and mode != layer.quantization_mode:
        config = {"config": keras.saving.deserialize_keras_object(config)} if config else {}
        # Keras collects all garbage of the process after each kernel, which may take a second.
        was_frozen = gc.get_freeze_count() > 0
        gc.freeze()
        layer.quantize(mode, **config)
        if not was_frozen:
            gc.unfreeze()
        if keras.backend.backend() == "torch":
            # As `keras.Model.quantize` does: torch would keep the kernel of before.
            layer._track_variables()
    if rank:
        layer.enable_lora(rank, lora_alpha=alpha)


class Layer(KeepsFrozen, keras.layers.Layer):
    """A Keras layer that saves the arguments of its constructor, and which parts are frozen."""


def frozen_parts(layer):
    """List the frozen parts of a layer.

    Args:
        layer: a built layer.

    Returns:
        A dictionary with two lists of paths relative to the layer: `"layers"`, its frozen
        sublayers, and `"variables"`, its frozen variables.

    Example:
    >>> from keras_vit.layers.base import frozen_parts
    >>> layer = keras_vit.PatchEmbedding(8, patch_size=4)
    >>> layer.build((None, 16, 16, 3))
    >>> layer.projection.kernel.trainable = False
    >>> frozen_parts(layer)
    {'layers': [], 'variables': ['projection/kernel']}
    """
    parts = {"layers": _sublayers(layer), "variables": _variables(layer)}
    return {
        kind: [path for path, part in found.items() if not part.trainable]
        for kind, found in parts.items()
    }


def freeze_parts(layer, frozen):
    """Freeze the listed parts of a layer, and unfreeze all others.

    Args:
        layer: a built layer.
        frozen: dictionary from `frozen_parts`.
    """
    # A layer passes its flag on to all its parts, so parents come first.
    for path, part in _sublayers(layer).items():
        part.trainable = path not in frozen["layers"]
    for path, variable in _variables(layer).items():
        variable.trainable = path not in frozen["variables"]


def set_trainable(layer, trainable):
    """Freeze a layer or a model with all its parts, or unfreeze all of them."""
    for child in children(layer):
        set_trainable(child, trainable)
    # On TensorFlow, assigning the present value changes nothing, not even in the parts.
    layer.trainable = not trainable
    layer.trainable = trainable


def copy_frozen(source, target):
    """Freeze exactly those parts of a layer that are frozen in another of the same structure."""
    target.trainable = source.trainable
    for old, new in zip(children(source), children(target), strict=True):
        copy_frozen(old, new)
    for old, new in zip(source.weights, target.weights, strict=True):
        new.trainable = old.trainable


def children(layer):
    """Return the layers that are attributes of a layer, or the layers of a model."""
    if isinstance(layer, keras.Model):
        return layer.layers
    # On torch a layer is a module, which keeps its sublayers apart from its attributes.
    is_module = keras.backend.backend() == "torch"
    found = layer.children() if is_module else vars(layer).values()
    return [child for child in found if isinstance(child, keras.layers.Layer)]


def parts(layer):
    """Yield a layer, its sublayers and theirs."""
    yield layer
    for child in children(layer):
        yield from parts(child)


def _sublayers(layer, prefix=""):
    found = {}
    for child in children(layer):
        found[prefix + child.name] = child
        found |= _sublayers(child, f"{prefix}{child.name}/")
    return found


def _variables(layer):
    return {weight.path.removeprefix(f"{layer.path}/"): weight for weight in layer.weights}
