"""The options that build a model, read off the model."""

import inspect

import keras

from keras_vit.layers import (
    AddSincosPositionEmbedding,
    ClassToken,
    ClassTokenPooling,
    MultiHeadAttentionPooling,
    PatchEmbedding,
    RegisterTokens,
    TransformerBlock,
)
from keras_vit.models.vit import vision_transformer

# What an option is where none is given.
DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(vision_transformer).parameters.items()
}


def describe(model):
    """The options of `vision_transformer` that build a model of this architecture.

    Args:
        model: a model of this package, built, tuned or reloaded.

    Returns:
        A dictionary, without `name` and `dtype`.

    Raises:
        ValueError: if `vision_transformer` does not build such a model.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32, pooling="map")
    >>> options = describe(model)
    >>> options["embedding_dim"], options["depth"], options["pooling"]
    (192, 12, 'map')
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"`model` must be a `keras.Model`. Received: {model!r:.60}")
    layers = {layer.name: layer for layer in model.layers}
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    patches, head = layers.get("patch_embedding"), layers.get("head")
    is_one_to_one = len(model.inputs) == len(model.outputs) == 1
    if not isinstance(patches, PatchEmbedding) or not blocks or not is_one_to_one:
        raise ValueError(
            "`model` must be a Vision Transformer as the builders make it. "
            f"Received: {type(model).__name__} {model.name!r} with the layers {', '.join(layers)}"
        )
    pooling = layers.get("pooling")
    registers, pre_logits = layers.get("register_tokens"), layers.get("pre_logits")
    sincos = isinstance(layers.get("position_embedding"), AddSincosPositionEmbedding)
    options = {
        "patch_size": patches.patch_size,
        "embedding_dim": patches.embedding_dim,
        "depth": len(blocks),
        "num_heads": blocks[0].num_heads,
        "mlp_dim": blocks[0].mlp_dim,
        "num_classes": head.units if head else 0,
        "image_size": tuple(model.inputs[0].shape[1:3]),
        "image_channels": model.inputs[0].shape[-1],
        "pooling": _pooling_name(pooling),
        "representation_size": pre_logits.units if pre_logits else None,
        "classifier_activation": _activation_name(head),
        "activation": blocks[0].activation,
        "dropout": blocks[0].dropout,
        "attention_dropout": blocks[0].attention_dropout,
        "stochastic_depth": blocks[-1].stochastic_depth,
        "class_token": isinstance(layers.get("class_token"), ClassToken),
        "num_registers": registers.num_registers if isinstance(registers, RegisterTokens) else 0,
        "position_embedding": "sincos2d" if sincos else "learned",
        "qkv_bias": blocks[0].qkv_bias,
        "qk_norm": blocks[0].qk_norm,
        "layer_scale": blocks[0].layer_scale,
        "pre_norm": "pre_norm" in layers,
        "fc_norm": "fc_norm" in layers,
        "epsilon": blocks[0].epsilon,
    }
    _check_layers(model, options)
    return options


def _check_layers(model, options):
    """Raises if the model has other layers than `vision_transformer` makes with the options."""
    # One block is as good as all, and makes the comparison small.
    pattern = vision_transformer(**{**options, "depth": 1})
    expected = []
    for operation in pattern.operations:
        names = [operation.name]
        if isinstance(operation, TransformerBlock):
            names = [f"block_{index}" for index in range(options["depth"])]
        expected += [(name, type(operation).__name__) for name in names]
    # Operations that are no layers count too. The input has the name that the user gave.
    actual = [(operation.name, type(operation).__name__) for operation in model.operations]
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    if len({_function_of(block) for block in blocks}) > 1:
        raise ValueError(
            "`model` must have blocks of one kind. Received: blocks that differ from each other"
        )
    if actual[1:] != expected[1:]:
        different = sorted(set(actual) ^ set(expected))
        raise ValueError(
            "`model` must have the layers that the builders make. Received: a model that differs "
            f"in {', '.join(' '.join(pair) for pair in different[:4])}"
        )


def _function_of(block):
    """What a block computes, apart from what it drops in training."""
    left_out = ("name", "stochastic_depth", "trainable", "dtype")
    config = {name: value for name, value in block.get_config().items() if name not in left_out}
    return str(sorted(config.items()))


def _pooling_name(layer):
    if layer is None:
        return None
    if isinstance(layer, ClassTokenPooling):
        return "token"
    return "map" if isinstance(layer, MultiHeadAttentionPooling) else "gap"


def _activation_name(head):
    name = keras.activations.serialize(head.activation) if head else "linear"
    return None if name == "linear" else name
