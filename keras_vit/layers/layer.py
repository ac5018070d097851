"""`Layer`, the base class of the layers, which records what is frozen or quantized; and `Dense`."""

import gc

import keras
from keras import ops

from keras_vit.core.arguments import constructor_arguments

# Names of the two matrices whose product LoRA adds to a kernel.
LORA_KERNELS = ("lora_kernel_a", "lora_kernel_b")


@keras.saving.register_keras_serializable("keras_vit")
class Dense(keras.layers.Dense):
    """Keras's Dense layer without activation, with LoRA whose matrices stay apart from the kernel.

    Keras's own LoRA merges them when it saves the layer, after which they are zero and never learn
    again. It rounds the sum of kernel and product in half precision, and computes the gradient of
    the whole kernel.

    Input: `(rows, width)`. Output: `(rows, units)`.

    Args:
        units: width of the output.
        **kwargs: as in `keras.layers.Dense`. With a `lora_rank` the kernel is frozen, and
            `lora_alpha / lora_rank` times the product of `lora_kernel_a` and `lora_kernel_b` is
            added to it.

    Reference:
        LoRA (arXiv 2106.09685).

    Example:
    >>> from keras_vit.layers.layer import Dense
    >>> layer = Dense(8, lora_rank=2)
    >>> tuple(layer(np.ones((5, 4))).shape), len(layer.trainable_weights)
    ((5, 8), 3)
    """

    def enable_lora(self, rank, a_initializer="he_uniform", b_initializer="zeros"):
        """Add the two matrices; Keras calls this at the end of `build`, if there is a rank."""
        shapes = (self.kernel.shape[0], rank), (rank, self.units)
        for name, *arguments in zip(
            LORA_KERNELS, shapes, (a_initializer, b_initializer), strict=True
        ):
            setattr(self, name, self.add_weight(*arguments, dtype="float32", name=name))
        self.kernel.trainable = False

    def call(self, inputs, training=None):
        return self._adapted(super().call(inputs, training=training), inputs)

    def quantize(self, mode=None, type_check=True, **kwargs):
        # Keras refuses subclasses, as their `call` may be another function of the kernel.
        super().quantize(mode, type_check=False, **kwargs)

    def quantized_call(self, inputs, *args, **kwargs):
        return self._adapted(super().quantized_call(inputs, *args, **kwargs), inputs)

    def _adapted(self, outputs, inputs):
        """Add the product with the matrices of LoRA, if there are any."""
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
    """Return tokens `(batch, tokens, width)` as one matrix, a row per token.

    TensorFlow fuses a product, its bias and a GELU if both factors are matrices.
    """
    return ops.reshape(tokens, (-1, tokens.shape[-1]))


class KeepsSublayers:
    """Mixin for layers that save their arguments, and which sublayers are frozen or quantized.

    A `.keras` file stores `trainable` and the dtype policy of a model's layers, but not of their
    sublayers and variables. If one of these differs from its layer, the build configuration of the
    layer lists the frozen parts and the quantized kernels.
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
    """Quantize the kernel of a built layer in a mode of Keras, unless it is quantized so."""
    if mode == layer.quantization_mode:
        return
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


class Layer(KeepsSublayers, keras.layers.Layer):
    """A Keras layer that saves the arguments of its constructor, and the state of its parts."""

    # Rank and alpha of LoRA by the name of a dense layer.
    lora = None

    def dense(self, name, units, **options):
        """Return a dense sublayer, with LoRA if `lora` has its name."""
        rank, alpha = (self.lora or {}).get(name, (None, None))
        options |= {"lora_rank": rank, "lora_alpha": alpha, **self.sublayer_options()}
        return Dense(units, name=name, **options)


class Dropout(keras.layers.Dropout):
    """Keras's Dropout, which can also take a seed that was drawn before.

    Call arguments:
        inputs: a tensor.
        training: whether to apply dropout.
        seed: seed from `draw`; `None` to draw one now.
    """

    def draw(self):
        """Return a new seed, or `None` if the rate is 0."""
        return self.seed_generator.next() if self.rate > 0 else None

    def __call__(self, inputs, *args, **kwargs):
        # On torch, which has no graph, a call of a Keras layer takes half a millisecond.
        return super().__call__(inputs, *args, **kwargs) if self.rate > 0 else inputs

    def call(self, inputs, training=False, seed=None):
        if seed is None:
            return super().call(inputs, training=training)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, DrawnSeed(seed))


class DrawnSeed(keras.random.SeedGenerator):
    """Generator that returns one seed: `keras.random` takes generators, but no tensors."""

    def __init__(self, seed):
        # Keras's own constructor would create a variable in each call. On torch Keras reads
        # `_initial_seed`, and ignores the seed if that is `None`.
        self.seed = self._initial_seed = seed

    def next(self, ordered=True):
        """Return the same seed in each call."""
        return self.seed


def frozen_paths(layer):
    """List the frozen parts of a layer.

    Args:
        layer: a built layer.

    Returns:
        A dictionary with two lists of paths relative to the layer: `"layers"`, its frozen
        sublayers, and `"variables"`, its frozen variables.

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
    """Freeze the listed parts of a layer, and unfreeze all others.

    Args:
        layer: a built layer.
        frozen: dictionary from `frozen_paths`.
    """
    # A layer passes its flag on to all its parts, so parents come first.
    for path, part in _sublayers(layer).items():
        part.trainable = path not in frozen["layers"]
    for path, variable in variables_by_path(layer).items():
        variable.trainable = path not in frozen["variables"]


def set_trainable(layer, trainable):
    """Freeze a layer or a model with all its parts, or unfreeze all of them."""
    for child in children(layer):
        set_trainable(child, trainable)
    # On TensorFlow, assigning the present value changes nothing, not even in the parts.
    layer.trainable = not trainable
    layer.trainable = trainable


def children(layer):
    """Return the layers that are attributes of a layer, or the layers of a model."""
    if isinstance(layer, keras.Model):
        return layer.layers
    # On torch a layer is a module, which keeps its sublayers apart from its attributes.
    is_module = keras.backend.backend() == "torch"
    found = layer.children() if is_module else vars(layer).values()
    return [child for child in found if isinstance(child, keras.layers.Layer)]


def all_layers(layer):
    """Yield a layer, its sublayers and theirs."""
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
    """Return the variables of a layer by their paths in it."""
    return {weight.path.removeprefix(f"{layer.path}/"): weight for weight in layer.weights}
