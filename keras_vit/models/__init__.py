"""The models, the table of their variants, and surgery on them."""

from keras_vit.models.builders import (
    ViT_B8,
    ViT_B16,
    ViT_B32,
    ViT_G14,
    ViT_g14,
    ViT_H14,
    ViT_L16,
    ViT_L32,
    ViT_S16,
    ViT_S32,
    ViT_So400m14,
    ViT_Ti16,
    build,
)
from keras_vit.models.features import features
from keras_vit.models.positions import resize_position_embedding
from keras_vit.models.surgery import replace_head, resize
from keras_vit.models.variants import VARIANTS, Variant, find_variant, list_variants, match_variant
from keras_vit.models.vit import vision_transformer

__all__ = [
    "VARIANTS",
    "Variant",
    "ViT_B8",
    "ViT_B16",
    "ViT_B32",
    "ViT_G14",
    "ViT_H14",
    "ViT_L16",
    "ViT_L32",
    "ViT_S16",
    "ViT_S32",
    "ViT_So400m14",
    "ViT_Ti16",
    "ViT_g14",
    "build",
    "features",
    "find_variant",
    "list_variants",
    "match_variant",
    "replace_head",
    "resize",
    "resize_position_embedding",
    "vision_transformer",
]
