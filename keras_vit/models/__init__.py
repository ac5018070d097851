"""The models, the table of their variants, and surgery on them."""

from keras_vit.core.lazy import make_lazy
from keras_vit.models.variants import VARIANTS

__all__ = make_lazy(
    __name__,
    {
        # They stand above this folder, and were here before.
        "keras_vit.builders": ["build", *(row.name for row in VARIANTS)],
        "keras_vit.models.base": ["ImageModel"],
        "keras_vit.models.options": ["architecture_differences", "match_variant"],
        "keras_vit.models.positions": ["resize_patch_kernel", "resize_position_embedding"],
        "keras_vit.models.prediction": ["features"],
        "keras_vit.models.resnet": ["resnet"],
        "keras_vit.models.surgery": ["freeze_blocks", "replace_head", "resize"],
        "keras_vit.models.variants": [
            "ResNetVariant",
            "VARIANTS",
            "Variant",
            "find_variant",
            "list_variants",
        ],
        "keras_vit.models.vit": ["vision_transformer"],
    },
)
