"""Keras layers of Vision Transformers and of the ResNets they are compared with."""

from keras_vit.layers.attention import MultiHeadAttention
from keras_vit.layers.bottleneck import (
    BottleneckUnit,
    PreActivationBottleneckUnit,
    StandardizedConv2D,
)
from keras_vit.layers.mlp import MlpBlock
from keras_vit.layers.normalization import LayerScale
from keras_vit.layers.patches import CorruptPatches, PatchEmbedding
from keras_vit.layers.positions import (
    AddPositionEmbedding,
    AddPositionEmbedding2D,
    AddSincosPositionEmbedding,
)
from keras_vit.layers.tokens import (
    ClassToken,
    ClassTokenAndMeanPooling,
    ClassTokenPooling,
    DistilledHead,
    MultiHeadAttentionPooling,
    RegisterTokens,
)
from keras_vit.layers.transformer import AxialTransformerBlock, TransformerBlock

__all__ = [
    "AddPositionEmbedding",
    "AddPositionEmbedding2D",
    "AddSincosPositionEmbedding",
    "AxialTransformerBlock",
    "BottleneckUnit",
    "ClassToken",
    "ClassTokenAndMeanPooling",
    "ClassTokenPooling",
    "CorruptPatches",
    "DistilledHead",
    "LayerScale",
    "MlpBlock",
    "MultiHeadAttention",
    "MultiHeadAttentionPooling",
    "PatchEmbedding",
    "PreActivationBottleneckUnit",
    "RegisterTokens",
    "StandardizedConv2D",
    "TransformerBlock",
]
