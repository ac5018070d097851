"""The options that build a model, read off the model."""

import re

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
from keras_vit.layers.resnet import Bottleneck, PreActivationBottleneckUnit
from keras_vit.models.options import DEFAULTS, is_resnet, make_model

UNIT_NAME = r"stage_(\d+)_unit_(\d+)"


def describe(model):
    """The options of `vision_transformer` or `resnet` that build a model of this architecture.

    Args:
        model: a model of this package, built, tuned or reloaded.

    Returns:
        A dictionary, without `name` and `dtype`; see `make_model`.

    Raises:
        ValueError: if neither builds such a model.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32, pooling="map")
    >>> options = describe(model)
    >>> options["embedding_dim"], options["depth"], options["pooling"]
    (192, 12, 'map')
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"`model` must be a `keras.Model`. Received: {model!r:.60}")
    layers = {layer.name: layer for layer in model.layers}
    has_patches = isinstance(layers.get("patch_embedding"), PatchEmbedding)
    has_blocks = any(isinstance(layer, TransformerBlock) for layer in model.layers)
    has_units = any(isinstance(layer, Bottleneck) for layer in model.layers)
    is_one_to_one = len(model.inputs) == len(model.outputs) == 1
    if not is_one_to_one or has_patches != has_blocks or not (has_patches or has_units):
        raise ValueError(
            "`model` must be a Vision Transformer or a ResNet as the builders make it. "
            f"Received: {type(model).__name__} {model.name!r} with the layers {', '.join(layers)}"
        )
    options = _vit_options(model, layers) if has_patches else _resnet_options(layers)
    head = layers.get("head")
    options |= {
        "num_classes": head.units if head else 0,
        "image_size": tuple(model.inputs[0].shape[1:3]),
        "image_channels": model.inputs[0].shape[-1],
        "classifier_activation": _activation_name(head),
    }
    _check_layers(model, options)
    return options


def _vit_options(model, layers):
    blocks = _blocks(model)
    block = blocks[0]
    patches, pooling = layers["patch_embedding"], layers.get("pooling")
    registers, pre_logits = layers.get("register_tokens"), layers.get("pre_logits")
    sincos = isinstance(layers.get("position_embedding"), AddSincosPositionEmbedding)
    root_conv = layers.get("root_conv")
    return {
        "patch_size": patches.patch_size,
        "embedding_dim": patches.embedding_dim,
        "depth": len(blocks),
        "num_heads": block.num_heads,
        "mlp_dim": block.mlp_dim,
        "pooling": _pooling_name(pooling),
        "representation_size": pre_logits.units if pre_logits else None,
        "activation": block.activation,
        "dropout": block.dropout,
        "attention_dropout": block.attention_dropout,
        "stochastic_depth": blocks[-1].stochastic_depth,
        "class_token": isinstance(layers.get("class_token"), ClassToken),
        "num_registers": registers.num_registers if isinstance(registers, RegisterTokens) else 0,
        "position_embedding": "sincos2d" if sincos else "learned",
        "qkv_bias": block.qkv_bias,
        "qk_norm": block.qk_norm,
        "layer_scale": block.layer_scale,
        "pre_norm": "pre_norm" in layers,
        "fc_norm": "fc_norm" in layers,
        "epsilon": block.epsilon,
        "resnet_stages": _stages(layers) if root_conv else None,
        "resnet_width": root_conv.filters if root_conv else DEFAULTS["resnet_width"],
    }


def _resnet_options(layers):
    preactivation = any(isinstance(x, PreActivationBottleneckUnit) for x in layers.values())
    return {
        "stages": _stages(layers),
        "width": layers["root_conv"].filters if "root_conv" in layers else 0,
        "preactivation": preactivation,
    }


def _blocks(model):
    return [layer for layer in model.layers if isinstance(layer, TransformerBlock)]


def _stages(layers):
    """The number of units of each stage, by their names."""
    stages = [int(match[1]) for name in layers if (match := re.fullmatch(UNIT_NAME, name))]
    return tuple(stages.count(stage) for stage in range(1, max(stages, default=0) + 1))


def _check_layers(model, options):
    """Raises if the model has other layers than the builders make with the options."""
    expected = []
    for operation in _pattern(options).operations:
        names = [operation.name]
        if isinstance(operation, TransformerBlock):
            names = [f"block_{index}" for index in range(options["depth"])]
        elif isinstance(operation, Bottleneck):
            stage = int(re.fullmatch(UNIT_NAME, operation.name)[1])
            units = options.get("stages") or options["resnet_stages"]
            names = [f"stage_{stage}_unit_{u}" for u in range(1, units[stage - 1] + 1)]
        expected += [(name, type(operation).__name__) for name in names]
    # Operations that are no layers count too. The input has the name that the user gave.
    actual = [(operation.name, type(operation).__name__) for operation in model.operations]
    if len({_function_of(block) for block in _blocks(model)}) > 1:
        raise ValueError(
            "`model` must have blocks of one kind. Received: blocks that differ from each other"
        )
    if actual[1:] != expected[1:]:
        different = sorted(set(actual) ^ set(expected))
        raise ValueError(
            "`model` must have the layers that the builders make. Received: a model that differs "
            f"in {', '.join(' '.join(pair) for pair in different[:4])}"
        )
    _check_units(model, options.get("width") or options["resnet_width"])


def _pattern(options):
    """A model with the layers of these options, but one block, one unit a stage and few channels.

    One of a kind is as good as all, and makes the comparison small.
    """
    smaller = {"depth": 1}
    if is_resnet(options):
        smaller = {"stages": (1,) * len(options["stages"]), "width": 32}
    elif options["resnet_stages"] is not None:
        smaller |= {"resnet_stages": (1,) * len(options["resnet_stages"]), "resnet_width": 32}
    return make_model({**options, **smaller})


def _check_units(model, width):
    for layer in model.layers:
        if not isinstance(layer, Bottleneck):
            continue
        stage, unit = map(int, re.fullmatch(UNIT_NAME, layer.name).groups())
        wanted = (width * 2 ** (stage - 1), 2 if stage > 1 and unit == 1 else 1)
        if (layer.filters, layer.strides) != wanted:
            raise ValueError(
                f"`model` must have in {layer.name} the filters and strides {wanted}, as the "
                f"builders make it. Received: {(layer.filters, layer.strides)}"
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
