"""Find the backbone, head, blocks, kernels and position embeddings of a model."""

import itertools
import logging
import math

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import AXES, grid_size
from keras_vit.layers import (
    AxialTransformerBlock,
    ClassToken,
    ClassTokenPooling,
    MultiHeadAttentionPooling,
    PatchEmbedding,
    StandardizedConv2D,
    TransformerBlock,
)
from keras_vit.layers.bottleneck import Bottleneck
from keras_vit.layers.layer import all_layers, variables_by_path
from keras_vit.layers.normalization import GroupNorm
from keras_vit.layers.tokens import LearnedTokens
from keras_vit.models.vit import ADDED_POSITIONS, default_grid

HEAD_LAYERS = ("projection", "pre_logits", "unit_norm", "head")
# The layers that `zero_shot` replaces.
ZERO_SHOT_LAYERS = ("unit_norm", "head")
POSITION_LAYERS = tuple(ADDED_POSITIONS.values())
BLOCKS = (TransformerBlock, AxialTransformerBlock)


def token_grid(model, images=None):
    """Return `(rows, columns)` of the patches of a model, or `None` for a ResNet.

    If the model takes images of any size, the grid follows from the array `images`.
    """
    check_backbone(model)
    for layer in _layers_of(model, PatchEmbedding):
        shape = getattr(images, "shape", ())
        if layer.grid_size is None and len(shape) != 4:
            raise ValueError(
                "`model` must be of one image size, as from `keras_vit.resize`, unless `images` is "
                f"an array. Received: {model.name!r}, which takes images of any size"
            )
        return layer.grid_size or grid_size(tuple(shape[1:3]), token_stride(model))
    return None


def stored_grid(model):
    """Return `token_grid`; if the image size is not fixed, the grid of the position embeddings."""
    grids = [layer.grid_size for layer in _layers_of(model, (PatchEmbedding, *POSITION_LAYERS))]
    return next(filter(None, grids), None)


def stored_size(model):
    """Return the image size; if it is not fixed, the size that the position embeddings fit."""
    size, stride = tuple(model.inputs[0].shape[1:3]), token_stride(model)
    sides = zip(stored_grid(model) or default_grid(stride), stride, strict=True)
    return tuple(n * pixels for n, pixels in sides) if None in size else size


def token_stride(model):
    """Return `(height, width)` of the part of an image that one token represents.

    It is `(1, 1)` for a ResNet.
    """
    for layer in _layers_of(model, PatchEmbedding):
        if layer.grid_size is None:
            # Only the strides of a hybrid's ResNet count. Layers of pyramids have strides, too.
            resnet = [x for x in model.layers if x.name.startswith(("root_", "stage_"))]
            factor = math.prod(int(np.max(getattr(x, "strides", 1))) for x in resnet)
            return tuple(factor * pixels for pixels in layer.patch_size)
    grid = token_grid(model)
    if grid is None:
        return (1, 1)
    return tuple(size // n for size, n in zip(model.inputs[0].shape[1:3], grid, strict=True))


def check_backbone(model):
    """Raise an error unless a model has patches or residual units of this package."""
    kinds = (PatchEmbedding, Bottleneck)
    if not any(isinstance(layer, kinds) for layer in getattr(model, "layers", [])):
        raise ValueError(
            "`model` must be a Vision Transformer with a `PatchEmbedding` layer, or a ResNet of "
            f"this package. Received: {type(model).__name__} {getattr(model, 'name', model)!r}, "
            "which is neither"
        )


def representation(model, head_layers=HEAD_LAYERS):
    """Return the symbolic output of the backbone: the input of the first layer of the head."""
    inputs = (layer.input for layer in model.layers if layer.name in head_layers)
    return next(inputs, model.outputs[0])


def check_classifier(model):
    """Return the number of classes of a model that maps images to logits.

    Raises:
        ValueError: if the model does not map images to logits.
    """
    check_backbone(model)
    head, logits = model.layers[-1], model.outputs[0].shape
    is_linear = getattr(head, "activation", None) is keras.activations.linear
    if head.name != "head" or not is_linear or len(model.inputs) != 1 or len(logits) != 2:
        raise ValueError(
            "`model` must map images to logits by its last layer, `head`. "
            f"Received: a model from {model.inputs[0].shape} to {logits}, with the last layer "
            f"{head.name!r}"
        )
    return logits[-1]


def is_segmenter(model):
    """Whether a model is a `keras_vit.segmenter`, which returns logits of pixels."""
    return len(model.outputs[0].shape) == 4 and model.layers[-1].name == "logits"


def output_name(model):
    """Return the name of a model's output.

    It is `logits`, `values` if the model predicts values, or `features` if it has no head.
    """
    if model.layers[-1].name not in ("head", "logits"):
        return "features"
    return "values" if predicts_values(model) else "logits"


def predicts_values(model):
    """Whether the outputs of a model are values (regression) instead of logits of classes."""
    return bool(getattr(model, "predicts_values", False))


def has_zero_head(model):
    """Whether the kernel of the head is zero, so that all images have the same logits."""
    kernels = [weight for weight in model.get_layer("head").weights if weight.name == "kernel"]
    return not any(bool(ops.any(kernel.value)) for kernel in kernels)


def warn_of_zero_head(num_classes):
    """Log a warning that a classifier is not trained."""
    logging.getLogger("keras_vit").warning(
        "all images have the same logits of the %d classes: the kernel of the model's head is "
        "zero, so it is not trained",
        num_classes,
    )


def find_blocks(model):
    """Return the Transformer blocks of a model, from the first to the last.

    Blocks of a segmenter's decoder are left out.

    Raises:
        ValueError: if the model has no Transformer blocks.
    """
    check_backbone(model)
    blocks = [x for x in _layers_of(model, BLOCKS) if not x.name.startswith("decoder_")]
    if not blocks:
        raise ValueError(
            "`model` must have `TransformerBlock` layers: a ResNet has no attention. "
            f"Received: the model {model.name!r}, which has no such layers"
        )
    return blocks


def token_layer_names(model):
    """Return the names of the layers, from the first block on, that return all tokens."""
    blocks = find_blocks(model)
    first, last = (model.layers.index(block) for block in (blocks[0], blocks[-1]))

    def returns_tokens(layer):
        return getattr(layer.output, "shape", None) == blocks[0].output.shape

    names = [layer.name for layer in model.layers[first:last] if returns_tokens(layer)]
    # Norms after the last block, but not the decoder of a segmenter.
    names += [layer.name for layer in itertools.takewhile(returns_tokens, model.layers[last:])]
    return tuple(names)


def has_blocks(model):
    """Whether a model has Transformer blocks; a ResNet has none."""
    return bool(_layers_of(model, BLOCKS))


def attention_names(blocks):
    """Return the names of attention layers: one per block, or two per axial block."""
    names = []
    for block in blocks:
        axes = AXES if isinstance(block, AxialTransformerBlock) else ()
        names += [f"{block.name}/{axis}" for axis in axes] or [block.name]
    return names


def find_attention_pooling(model):
    """Return a list with the layer that pools patches by attention; empty if there is none."""
    return _layers_of(model, MultiHeadAttentionPooling)


def has_distillation_token(model):
    """Whether a model classifies by a class token and a distillation token."""
    return any(layer.num_tokens == 2 for layer in _layers_of(model, ClassTokenPooling))


def has_class_output(model):
    """Whether the output of a model is computed from its class token."""
    if _layers_of(model, ClassTokenPooling):
        return True
    pools = _layers_of(model, keras.layers.GlobalAveragePooling1D)
    return bool(_layers_of(model, ClassToken)) and not pools and not find_attention_pooling(model)


def num_prefix_tokens(model):
    """Return the number of tokens before the patches: class token and registers."""
    first = find_blocks(model)[0]
    num_tokens = first.output.shape[1]
    if num_tokens is not None:
        return num_tokens - math.prod(token_grid(model))
    # For images of any size. The decoder of a segmenter has tokens, too.
    before = model.layers[: model.layers.index(first)]
    return sum(layer.num_new for layer in before if isinstance(layer, LearnedTokens))


def first_kernel(model):
    """Return the first kernel, float64 `(height, width, channels, filters)`.

    It is the kernel of the patch embedding, or the standardized kernel of the first convolution of
    a hybrid or a ResNet.
    """
    layer = first_convolution(model)
    is_standardized = isinstance(layer, StandardizedConv2D)
    return _to_numpy(layer.standardize(layer.kernel) if is_standardized else layer.kernel)


def first_convolution(model):
    """Return the layer that reads the channels of images, with its variable `kernel`.

    It is the projection of the patches, or the first convolution of a hybrid or a ResNet.
    """
    check_backbone(model)
    layer = _layers_of(model, (StandardizedConv2D, PatchEmbedding))[0]
    return layer.projection if isinstance(layer, PatchEmbedding) else layer


def has_positions(model):
    """Whether a model has position embeddings."""
    return bool(_layers_of(model, POSITION_LAYERS))


def position_table(model):
    """Return the position embeddings of a model, float64 `(tokens, width)`.

    The embeddings of the class token and of registers come first. If blocks have separate
    embeddings, the embeddings before the first block are returned.
    """
    check_backbone(model)
    for layer in _layers_of(model, POSITION_LAYERS):
        return _to_numpy(layer.table_of())[0]
    raise ValueError(
        f"`model` must have position embeddings. Received: {model.name!r}, which has none"
    )


def group_norms(model):
    """Return the GroupNorms of a model, at any depth."""
    return [layer for layer in all_layers(model) if isinstance(layer, GroupNorm)]


def named_weights(model):
    """Return the variables of a model by the name of the layer and the path in the layer.

    `variable.path` could not be used to match copies: it depends on the name scope of the model.
    """
    return {
        f"{layer.name}/{path}": variable
        for layer in model.layers
        for path, variable in variables_by_path(layer).items()
    }


def _layers_of(model, kind):
    return [layer for layer in model.layers if isinstance(layer, kind)]


def _to_numpy(variable):
    # NumPy has no bfloat16.
    return ops.convert_to_numpy(ops.cast(variable, "float32")).astype("float64")
