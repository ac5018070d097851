"""Base classes of the layers, which record what is frozen or quantized, and `Dense` with LoRA."""

import gc

import keras
from keras import ops

from keras_vit.core.arguments import constructor_arguments

# Names of the two matrices whose product LoRA adds to a kernel.
LORA_KERNELS = ("lora_kernel_a", "lora_kernel_b")


@keras.saving.register_keras_serializable("keras_vit")
class Dense(keras.layers.Dense):
    """Keras's Dense layer without activation, with LoRA that keeps its matrices when it is saved.

    Keras's own LoRA merges the matrices into the kernel when the layer is saved. After loading,
    they are zero and never learn again. In half precision, Keras also rounds the sum of the kernel
    and the product of the matrices; and it computes the gradient of the whole kernel.

    Input: `(rows, width)`. Output: `(rows, units)`.

    Args:
        units: width of the output.
        **kwargs: as in `keras.layers.Dense`. With `lora_rank`, the kernel is frozen, and the layer
            adds `lora_alpha / lora_rank` times the product of `lora_kernel_a` and `lora_kernel_b`
            to the kernel.

    Reference:
        LoRA (arXiv 2106.09685).

    Example:
    >>> from keras_vit.layers.layer import Dense
    >>> layer = Dense(8, lora_rank=2)
    >>> tuple(layer(np.ones((5, 4))).shape), len(layer.trainable_weights)
    ((5, 8), 3)
    """

    def enable_lora(self, rank, a_initializer="he_uniform", b_initializer="zeros"):
        """Add the two matrices; Keras calls this at the end of `build` if `lora_rank` is given."""
        shapes = (self.kernel.shape[0], rank), (rank, self.units)
        for name, *arguments in zip(
            LORA_KERNELS, shapes, (a_initializer, b_initializer), strict=True
        ):
            setattr(self, name, self.add_weight(*arguments, dtype="float32", name=name))
        self.kernel.trainable = False

    def call(self, inputs, training=None):
        return self._add_lora(super().call(inputs, training=training), inputs)

    def quantize(self, mode=None, type_check=True, **kwargs):
        # Keras's type check refuses subclasses, whose `call` may be another function of the kernel.
        super().quantize(mode, type_check=False, **kwargs)

    def quantized_call(self, inputs, *args, **kwargs):
        return self._add_lora(super().quantized_call(inputs, *args, **kwargs), inputs)

    def _add_lora(self, outputs, inputs):
        """Add the product of the inputs and LoRA's matrices to the outputs, if there is LoRA."""
        if not self.lora_rank:
            return outputs
        a, b = (ops.cast(getattr(self, name), self.compute_dtype) for name in LORA_KERNELS)
        product = ops.matmul(ops.matmul(inputs, a), b)
        return outputs + product * (self.lora_alpha / self.lora_rank)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        for name in LORA_KERNELS if self.lora_rank else ():
            store[name] = getattr(self, name)

    def load_own_variables(self, store):
        super().load_own_variables(store)
        for name in LORA_KERNELS if self.lora_rank else ():
            getattr(self, name).assign(store[name])


def as_rows(tokens):
    """Return tokens `(batch, tokens, width)` as one matrix with one row per token.

    TensorFlow fuses a product with its bias and a GELU only if both factors are matrices.
    """
    return ops.reshape(tokens, (-1, tokens.shape[-1]))


class RecordsFrozenOrQuantized:
    """Mixin for layers: records constructor arguments, and what is frozen or quantized inside.

    A `.keras` file stores `trainable` and the dtype policy of a model's layers, but not of the
    sublayers and variables inside them. A layer with this mixin lists its quantized sublayers, and
    its frozen sublayers and variables, in its build configuration.
    """

    def sublayer_options(self):
        """Return the options that a layer passes to each of its sublayers."""
        return {"dtype": self.dtype_policy, "trainable": self.trainable}

    def get_config(self):
        return {**super().get_config(), **constructor_arguments(self)}

    def get_build_config(self):
        config = super().get_build_config()
        if config is None:
            return None
        quantized = {
            path: [part.quantization_mode, _quantization_config(part)]
            for path, part in _sublayers(self).items()
            if part.quantization_mode
        }
        parts = [*_sublayers(self).values(), *variables_by_path(self).values()]
        is_frozen = any(part.trainable != self.trainable for part in parts)
        frozen = {"frozen": frozen_paths(self)} if is_frozen else {}
        return {**config, **({"quantized": quantized} if quantized else {}), **frozen}

    def build_from_config(self, config):
        super().build_from_config(config)
        for path, arguments in config.get("quantized", {}).items():
            quantize_layer(_sublayers(self)[path], *arguments)
        if "frozen" in config:
            restore_frozen(self, config["frozen"])


def _quantization_config(layer):
    config = getattr(layer, "quantization_config", None)
    return config and keras.saving.serialize_keras_object(config)


def quantize_layer(layer, mode, config=None):
    """Quantize the kernel of a built layer in a mode of Keras, unless it already has this mode."""
    if mode == layer.quantization_mode:
        return
    config = {"config": keras.saving.deserialize_keras_object(config)} if config else {}
    # After each kernel, Keras collects garbage, which may take a second. It skips frozen objects.
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    layer.quantize(mode, **config)
    if not was_frozen:
        gc.unfreeze()
    if keras.backend.backend() == "torch":
        # As in `keras.Model.quantize`. Otherwise torch would keep the float kernel.
        layer._track_variables()


class Layer(RecordsFrozenOrQuantized, keras.layers.Layer):
    """Base class of most layers of this package."""

    # Dictionary from names of dense sublayers to `(rank, alpha)` of LoRA.
    lora = None

    def dense(self, name, units, **options):
        """Return a dense sublayer, with LoRA if `lora` contains the name."""
        rank, alpha = (self.lora or {}).get(name, (None, None))
        options |= {"lora_rank": rank, "lora_alpha": alpha, **self.sublayer_options()}
        return Dense(units, name=name, **options)


class Dropout(keras.layers.Dropout):
    """Keras's Dropout, which can take a seed in the call.

    Call arguments:
        inputs: a tensor.
        training: whether to apply dropout.
        seed: seed from `draw`; `None` to draw one now.
    """

    def draw(self):
        """Return a new seed, or `None` if the rate is 0."""
        return self.seed_generator.next() if self.rate > 0 else None

    def __call__(self, inputs, *args, **kwargs):
        # A call that changes nothing is skipped: on torch it would take half a millisecond.
        return super().__call__(inputs, *args, **kwargs) if self.rate > 0 else inputs

    def call(self, inputs, training=False, seed=None):
        if seed is None:
            return super().call(inputs, training=training)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, DrawnSeed(seed))


class DrawnSeed(keras.random.SeedGenerator):
    """Generator that always returns a given seed, as `keras.random` does not accept tensors."""

    def __init__(self, seed):
        # Keras's own constructor would create a variable in each call. On torch, Keras ignores the
        # seed if `_initial_seed` is `None`.
        self.seed = self._initial_seed = seed

    def next(self, ordered=True):
        """Return the same seed in each call."""
        return self.seed


def frozen_paths(layer):
    """List the frozen sublayers and variables of a layer.

    Args:
        layer: a built layer.

    Returns:
        A dictionary with two lists of paths relative to the layer: `"layers"`, the frozen
        sublayers, and `"variables"`, the frozen variables.

    Example:
    >>> from keras_vit.layers.layer import frozen_paths
    >>> layer = keras_vit.PatchEmbedding(8, patch_size=4)
    >>> layer.build((None, 16, 16, 3))
    >>> layer.projection.kernel.trainable = False
    >>> frozen_paths(layer)
    {'layers': [], 'variables': ['projection/kernel']}
    """
    parts = {"layers": _sublayers(layer), "variables": variables_by_path(layer)}
    return {
        kind: [path for path, part in found.items() if not part.trainable]
        for kind, found in parts.items()
    }


def restore_frozen(layer, frozen):
    """Freeze the listed sublayers and variables of a layer, and unfreeze all others.

    Args:
        layer: a built layer.
        frozen: dictionary from `frozen_paths`.
    """
    # Setting `trainable` of a layer also sets it for all its sublayers, so parents come first.
    for path, part in _sublayers(layer).items():
        part.trainable = path not in frozen["layers"]
    for path, variable in variables_by_path(layer).items():
        variable.trainable = path not in frozen["variables"]


def set_trainable(layer, trainable):
    """Set `trainable` of a layer or a model, and of all its sublayers and variables."""
    for child in children(layer):
        set_trainable(child, trainable)
    # On TensorFlow, assigning the value that a layer already has does not reach its variables.
    # Assign the opposite first.
    layer.trainable = not trainable
    layer.trainable = trainable


def children(layer):
    """Return the direct sublayers of a layer, or the layers of a model."""
    if isinstance(layer, keras.Model):
        return layer.layers
    # On torch a layer is a module, which does not store its sublayers in `vars`.
    is_module = keras.backend.backend() == "torch"
    found = layer.children() if is_module else vars(layer).values()
    return [child for child in found if isinstance(child, keras.layers.Layer)]


def all_layers(layer):
    """Yield a layer and its sublayers at any depth."""
    yield layer
    for child in children(layer):
        yield from all_layers(child)


def _sublayers(layer, prefix=""):
    found = {}
    for child in children(layer):
        found[prefix + child.name] = child
        found |= _sublayers(child, f"{prefix}{child.name}/")
    return found


def variables_by_path(layer):
    """Return the variables of a layer, by their paths relative to the layer."""
    return {weight.path.removeprefix(f"{layer.path}/"): weight for weight in layer.weights}
