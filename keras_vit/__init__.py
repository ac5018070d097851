"""Vision Transformers for Keras 3.

The models of "An Image is Worth 16x16 Words" (arXiv 2010.11929), exact to the original, on the
TensorFlow, JAX and torch backends of Keras.
"""

import importlib

from keras_vit.core.imports import call_after_import, find_moved_modules
from keras_vit.core.lazy import make_lazy
from keras_vit.version import __version__ as __version__

# The public names, by the modules that define them. They are imported when they are used.
PUBLIC = {
    "keras_vit.builders": [
        "BiT_R50x1",
        "BiT_R50x2",
        "BiT_R50x3",
        "BiT_R101x1",
        "BiT_R101x3",
        "BiT_R152x1",
        "BiT_R152x2",
        "BiT_R152x4",
        "BiT_R200x3",
        "R26_S32",
        "R50_B16",
        "R50_B32",
        "R50_L16",
        "R50_L32",
        "R_Ti16",
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
        "ViT_S14",
        "ViT_B14",
        "ViT_L14",
        "ViT_giant14",
        "ViT_So400m16",
        "ViT_giantopt16",
        "ViT_Splus16",
        "ViT_Hplus16",
        "ViT_7B16",
        "build",
    ],
    "keras_vit.checkpoints": [
        "from_checkpoint",
        "from_keras_hub",
        "list_checkpoints",
        "load_checkpoint",
        "save_checkpoint",
        "to_keras_hub",
    ],
    "keras_vit.checkpoints.adapters": ["load_adapter", "save_adapter"],
    "keras_vit.data": ["decode_predictions", "preprocess"],
    "keras_vit.inspection.attention": ["attention_maps"],
    "keras_vit.inspection.rollout": ["attention_rollout"],
    "keras_vit.layers": [
        "AddPositionEmbedding",
        "ClassToken",
        "MultiHeadAttentionPooling",
        "PatchEmbedding",
        "TransformerBlock",
    ],
    "keras_vit.models.dense": ["backbone", "segmenter"],
    "keras_vit.models.tuning": ["enable_lora", "merge_lora", "quantize"],
    "keras_vit.models.features": ["features"],
    "keras_vit.models.inference": ["for_inference"],
    "keras_vit.models.positions": ["resize_patch_kernel", "resize_position_embedding"],
    "keras_vit.models.resnet": ["resnet"],
    "keras_vit.models.surgery": ["freeze_blocks", "replace_head", "resize"],
    "keras_vit.models.variants": ["list_variants"],
    "keras_vit.models.vit": ["vision_transformer"],
    "keras_vit.serving.export": ["export"],
}
PUBLIC_MODULES = [
    "keras_vit.checkpoints",
    "keras_vit.data",
    "keras_vit.evaluation",
    "keras_vit.experiments",
    "keras_vit.inspection",
    "keras_vit.layers",
    "keras_vit.models",
    "keras_vit.serving",
    "keras_vit.training",
    "keras_vit.training.callbacks",
    "keras_vit.training.losses",
    "keras_vit.training.optimizers",
]
# Modules of what a saved model may name: `import keras_vit` is enough for Keras to find it.
REGISTERED = (
    "keras_vit.layers",
    "keras_vit.models.model",
    "keras_vit.models.dense",
    "keras_vit.training.losses",
    "keras_vit.training.metrics",
    "keras_vit.training.optimizers",
)
# What replaces names of transformers, timm and keras.applications.
ELSEWHERE = {
    "AutoImageProcessor": "`keras_vit.serving.Predictor` or `keras_vit.serving.preprocess_files`",
    "AutoModel": "`keras_vit.from_checkpoint`",
    "AutoModelForImageClassification": "`keras_vit.from_checkpoint`",
    "TFViTForImageClassification": "`keras_vit.from_checkpoint`",
    "TFViTModel": "`keras_vit.from_checkpoint`",
    "ViTForImageClassification": "`keras_vit.from_checkpoint`",
    "ViTImageProcessor": "`keras_vit.serving.Predictor` or `keras_vit.serving.preprocess_files`",
    "ViTModel": "`keras_vit.from_checkpoint`",
    "VisionTransformer": "`keras_vit.vision_transformer`",
    "applications": "a builder, such as `keras_vit.ViT_B16`",
    "create_model": "a builder, such as `keras_vit.ViT_B16`",
    "from_pretrained": "`keras_vit.from_checkpoint`",
    "list_models": "`keras_vit.list_variants` or `keras_vit.list_checkpoints`",
    "load_model": "`keras.models.load_model`",
    "preprocess_input": "`keras_vit.preprocess`",
}


def _register():
    for module in REGISTERED:
        importlib.import_module(module)


__all__ = make_lazy(__name__, PUBLIC, PUBLIC_MODULES, ELSEWHERE)

find_moved_modules()
call_after_import("keras", _register)
