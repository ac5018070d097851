"""What is read off the layers of a model, for those who look into it."""

import keras
from keras import ops

from keras_vit.layers import (
    AddPositionEmbedding,
    AddPositionEmbedding2D,
    AddSincosPositionEmbedding,
    ClassToken,
    ClassTokenPooling,
    MultiHeadAttentionPooling,
    PatchEmbedding,
    StandardizedConv2D,
    TransformerBlock,
)
from keras_vit.models.surgery import check_backbone

POSITION_LAYERS = (AddPositionEmbedding, AddPositionEmbedding2D, AddSincosPositionEmbedding)


def find_blocks(model):
    """The Transformer blocks of a model, from the first to the last.

    Raises:
        ValueError: if it has none.
    """
    check_backbone(model)
    blocks = _layers_of(model, TransformerBlock)
    if not blocks:
        raise ValueError(
            "`model` must have `TransformerBlock` layers: a ResNet has no attention. "
            f"Received: the model {model.name!r} without any"
        )
    return blocks


def has_blocks(model):
    """Whether a model has Transformer blocks; a ResNet has none."""
    return bool(_layers_of(model, TransformerBlock))


def find_attention_pooling(model):
    """The layer that pools the patches by attention, in a list, or an empty list."""
    return _layers_of(model, MultiHeadAttentionPooling)


def has_class_output(model):
    """Whether a model's output is made of its class token."""
    if _layers_of(model, ClassTokenPooling):
        return True
    pools = _layers_of(model, keras.layers.GlobalAveragePooling1D)
    return bool(_layers_of(model, ClassToken)) and not pools and not find_attention_pooling(model)


def first_kernel(model):
    """The kernel that images go through, as it is applied.

    Returns:
        A float64 array `(height, width, channels, filters)`: of the patch embedding, or in a hybrid
        and in a ResNet of the first convolution.

    Raises:
        ValueError: if the model has neither.
    """
    check_backbone(model)
    for layer in model.layers:
        if isinstance(layer, StandardizedConv2D):
            return _to_numpy(layer.standardize(layer.kernel))
        if isinstance(layer, PatchEmbedding):
            return _to_numpy(layer.projection.kernel)
    raise ValueError(
        "`model` must have a `PatchEmbedding` or a `StandardizedConv2D` among its layers. "
        f"Received: the model {model.name!r} without them"
    )


def has_positions(model):
    """Whether a model has position embeddings."""
    return bool(_layers_of(model, POSITION_LAYERS))


def position_table(model):
    """The embeddings of the positions.

    Returns:
        A float64 array `(tokens, width)`. The rows of the class token and of registers, where they
        have one, come first.

    Raises:
        ValueError: if the model has none.
    """
    check_backbone(model)
    for layer in _layers_of(model, POSITION_LAYERS):
        if isinstance(layer, AddPositionEmbedding):
            return _to_numpy(layer.embedding)[0]
        if isinstance(layer, AddPositionEmbedding2D):
            return _to_numpy(layer.table())[0]
        return layer.table[0].astype("float64")
    raise ValueError(
        f"`model` must have position embeddings. Received: the model {model.name!r} without them"
    )


def _layers_of(model, kind):
    return [layer for layer in model.layers if isinstance(layer, kind)]


def _to_numpy(variable):
    # NumPy has no bfloat16 of its own.
    return ops.convert_to_numpy(ops.cast(variable, "float32")).astype("float64")
