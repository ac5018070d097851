"""The options that build a model: those that it carries, or read from the layers of another."""

import re

import keras

from keras_vit.core.choices import ATTENTION_EMBEDDINGS
from keras_vit.layers import (
    AxialTransformerBlock,
    ClassToken,
    ClassTokenAndMeanPooling,
    ClassTokenPooling,
    MultiHeadAttentionPooling,
    PatchEmbedding,
    RegisterTokens,
)
from keras_vit.layers.convolution import StandardizedConv2D
from keras_vit.layers.resnet import Bottleneck, PreActivationBottleneckUnit
from keras_vit.models.options import build_model
from keras_vit.models.parts import BLOCKS, is_segmenter
from keras_vit.models.stem_and_head import ADDED_POSITIONS, activation_name
from keras_vit.models.variants import is_resnet

# Parts of a layer's configuration that do not change what it predicts, or that `_pattern` makes
# small.
TRAINING_CONFIG = (
    "^(name|trainable|dtype|remat|attention_path|seed|rate|stochastic_depth|filters)$"
    "|initializer|regularizer|constraint"
)
# Options of a model that are arguments of its blocks.
BLOCK_OPTIONS = (
    *("num_heads", "mlp_dim", "activation", "dropout", "attention_dropout", "qkv_bias", "qk_norm"),
    *("layer_scale", "epsilon", "gated_mlp", "key_bias"),
)
UNIT_NAME = r"stage_(\d+)_unit_(\d+)"


def options_of(model):
    """Return the options of `vision_transformer` or `resnet` that build such a model.

    A model of the builders carries its options. Those of a model that was composed by hand, or
    saved by an earlier version, are read from its layers. `NOT_OPTIONS` are left out.

    Raises:
        ValueError: if neither function builds such a model.

    Example:
    >>> from keras_vit.models.introspection import options_of
    >>> options = options_of(keras_vit.ViT_Ti16(num_classes=10, image_size=32, pooling="map"))
    >>> options["embedding_dim"], options["depth"], options["pooling"]
    (192, 12, 'map')
    """
    return getattr(model, "options", None) or read_options(model)


def read_options(model):
    """Read the options of a model from its layers, and check that they build the same layers."""
    if not isinstance(model, keras.Model):
        raise ValueError(f"`model` must be a `keras.Model`. Received: {model!r:.60}")
    layers = {layer.name: layer for layer in model.layers}
    has_patches = isinstance(layers.get("patch_embedding"), PatchEmbedding)
    has_blocks = any(isinstance(layer, BLOCKS) for layer in model.layers)
    units = [name for name, layer in layers.items() if isinstance(layer, Bottleneck)]
    has_root = isinstance(layers.get("root_conv"), StandardizedConv2D)
    is_one_to_one = len(model.inputs) == len(model.outputs) == 1
    are_named = all(re.fullmatch(UNIT_NAME, name) for name in units) and (has_root or not units)
    is_whole = has_patches if has_blocks else units and not has_patches
    if is_segmenter(model):
        raise ValueError(
            "`model` must be a Vision Transformer or a ResNet, with a head for images or none. "
            f"Received: {model.name!r}, a segmenter, which `keras.models.load_model` loads, and "
            "`keras_vit.export` exports"
        )
    if not (is_one_to_one and are_named and is_whole):
        raise ValueError(
            "`model` must be a Vision Transformer or a ResNet as the builders make it. "
            f"Received: {type(model).__name__} {model.name!r} with the layers {', '.join(layers)}"
        )
    options = _vit_options(model, layers) if has_patches else _resnet_options(layers)
    head, size = layers.get("head"), tuple(model.inputs[0].shape[1:3])
    options |= {
        "num_classes": head.units if head else 0,
        "image_size": None if None in size else size,
        "image_channels": model.inputs[0].shape[-1],
        "classifier_activation": activation_name(head.activation) if head else None,
    }
    _check_layers(model, options)
    return options


def _vit_options(model, layers):
    blocks = _blocks(model)
    block = blocks[0]
    patches, pooling = layers["patch_embedding"], layers.get("pooling")
    registers, pre_logits = layers.get("register_tokens"), layers.get("pre_logits")
    projection = layers.get("projection")
    options = {
        **{name: getattr(block, name) for name in BLOCK_OPTIONS},
        "patch_size": patches.patch_size,
        "embedding_dim": patches.embedding_dim,
        "depth": len(blocks),
        "pooling": _pooling_name(pooling),
        "representation_size": pre_logits.units if pre_logits else None,
        "stochastic_depth": blocks[-1].stochastic_depth,
        "class_token": isinstance(layers.get("class_token"), ClassToken),
        "num_registers": registers.num_registers if isinstance(registers, RegisterTokens) else 0,
        "position_embedding": _position_embedding_name(layers.get("position_embedding"), block),
        "position_placement": _position_placement(model, layers),
        "axial": isinstance(block, AxialTransformerBlock),
        "pre_norm": "pre_norm" in layers,
        "fc_norm": "fc_norm" in layers,
        "patch_bias": patches.use_bias,
        "distillation_token": isinstance(layers.get("distillation_token"), ClassToken),
        "projection_dim": projection.units if projection else None,
        "final_norm": "encoder_norm" in layers or "fc_norm" in layers,
    }
    if "root_conv" in layers:
        options["resnet_stages"] = _stages(layers)
        options["resnet_width"] = layers["root_conv"].filters
    return options


def _position_embedding_name(layer, block):
    """Return the name of the option; `_check_layers` refuses layers of other kinds."""
    of_attention = [x for x in ATTENTION_EMBEDDINGS if getattr(block, f"{x}_grid_size", None)]
    added = [name for name, kind in ADDED_POSITIONS.items() if isinstance(layer, kind)]
    return (*added, *of_attention, "none")[0]


def _position_placement(model, layers):
    if "position_embedding_1" in layers:
        return "every_layer"
    # In a model of one block, embeddings of rows and columns have another place at the stem.
    is_after_tokens = isinstance(layers.get("position_embedding"), ADDED_POSITIONS["learned2d"])
    is_after_tokens = is_after_tokens and layers["position_embedding"].num_prefix_tokens > 0
    is_shared = "position_embedding" in _calls(model) or is_after_tokens
    return "every_layer_shared" if is_shared else "stem"


def _calls(model):
    """Return the number of calls of each layer that the model calls more than once, by name."""
    calls = {layer["name"]: len(layer["inbound_nodes"]) for layer in model.get_config()["layers"]}
    return {name: number for name, number in calls.items() if number > 1}


def _resnet_options(layers):
    preactivation = any(isinstance(x, PreActivationBottleneckUnit) for x in layers.values())
    return {
        "stages": _stages(layers),
        "width": layers["root_conv"].filters,
        "preactivation": preactivation,
    }


def _blocks(model):
    return [layer for layer in model.layers if isinstance(layer, BLOCKS)]


def _stages(layers):
    """Return the number of units per stage."""
    stages = [int(match[1]) for name in layers if (match := re.fullmatch(UNIT_NAME, name))]
    return tuple(stages.count(stage) for stage in range(1, max(stages, default=0) + 1))


def _check_layers(model, options):
    """Raise an error if the builders make other layers with these options."""
    expected, pattern = {}, _pattern(options)
    # The first operation is the input, with the name that the user gave.
    for operation in pattern.operations[1:]:
        for name, kind in _in_full(operation, pattern, options):
            expected[name] = _function_of(kind)
    # Operations that are no layers count too.
    actual = {operation.name: _function_of(operation) for operation in model.operations[1:]}
    if len({actual[block.name] for block in _blocks(model)}) > 1:
        raise ValueError(
            "`model` must have blocks of one kind. Received: blocks that differ from each other"
        )
    if options.get("dropout") == 0 and "dropout" not in actual:
        # A model composed by hand need not have a layer that does nothing.
        del expected["dropout"]
    different = [n for n in (*expected, *actual) if expected.get(n) != actual.get(n)]
    if different or list(expected) != list(actual):
        raise ValueError(
            "`model` must have the layers that the builders make. Received: a model that differs "
            f"in {', '.join(dict.fromkeys(different)) or 'the order of its layers'}"
        )
    is_shared = options.get("position_placement") == "every_layer_shared" and options["depth"] > 1
    if _calls(model) != ({"position_embedding": options["depth"]} if is_shared else {}):
        raise ValueError(
            "`model` must call each layer as often as the models of the builders do. "
            f"Received: a model with these calls of its layers: {_calls(model)}"
        )
    _check_units(model, options.get("width") or options.get("resnet_width"))


def _in_full(operation, pattern, options):
    """Return the layers that an operation of the pattern represents.

    They are pairs of a name and an operation of the pattern that computes the same.
    """
    if isinstance(operation, BLOCKS):
        found = [("block_0", operation)]
        for index in range(1, options["depth"]):
            if options["position_placement"] == "every_layer":
                positions = pattern.get_layer("position_embedding")
                found.append((f"position_embedding_{index}", positions))
            found.append((f"block_{index}", operation))
        return found
    if isinstance(operation, Bottleneck):
        stage = int(re.fullmatch(UNIT_NAME, operation.name)[1])
        units = options["stages" if is_resnet(options) else "resnet_stages"][stage - 1]
        return [(f"stage_{stage}_unit_{unit}", operation) for unit in range(1, units + 1)]
    return [(operation.name, operation)]


def _pattern(options):
    """Build a model of these options, but with one block, one unit per stage and few channels."""
    smaller = {"depth": 1}
    if is_resnet(options):
        smaller = {"stages": (1,) * len(options["stages"]), "width": 32}
    elif "resnet_stages" in options:
        smaller |= {"resnet_stages": (1,) * len(options["resnet_stages"]), "resnet_width": 32}
    return build_model({**options, **smaller})


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


def _function_of(operation):
    """Return what an operation computes, apart from its size and its behavior in training."""
    # `_check_units` compares filters and strides of units.
    is_compared = isinstance(operation, keras.layers.Layer) and not isinstance(
        operation, Bottleneck
    )
    config = operation.get_config() if is_compared else {}
    if config.get("patch_size"):
        # The stored grid of a model of any size is not an option.
        config.pop("grid_size", None)
    config = {name: value for name, value in config.items() if not re.search(TRAINING_CONFIG, name)}
    # Files of earlier versions, and models composed by hand, have Keras's own layers.
    of_keras = (keras.layers.GroupNormalization, keras.layers.MaxPooling2D)
    kind = next((kind for kind in of_keras if isinstance(operation, kind)), type(operation))
    return kind.__name__, str(sorted(config.items()))


def _pooling_name(layer):
    if layer is None:
        return None
    kinds = {
        ClassTokenPooling: "token",
        ClassTokenAndMeanPooling: "token_gap",
        MultiHeadAttentionPooling: "map",
    }
    return next((name for kind, name in kinds.items() if isinstance(layer, kind)), "gap")
