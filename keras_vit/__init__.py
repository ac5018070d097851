"""Vision Transformers for Keras 3.

The models of "An Image is Worth 16x16 Words" (arXiv 2010.11929), exact to the original, on the
TensorFlow, JAX and torch backends of Keras.
"""

import pathlib
import sys

__version__ = "0.2.0.dev0"

# The command line answers `--help` and mistakes in a fraction of the time that Keras takes to
# import; its commands import what they need.
_IS_COMMAND_LINE = pathlib.Path(sys.argv[0]).stem == "keras-vit" or (
    sys.argv[0] == "-m" and "keras_vit" in sys.orig_argv
)

if not _IS_COMMAND_LINE:
    from keras_vit import checkpoints, data, layers, models
    from keras_vit.checkpoints import (
        from_checkpoint,
        from_keras_hub,
        list_checkpoints,
        load_checkpoint,
        save_checkpoint,
        to_keras_hub,
    )
    from keras_vit.data import decode_predictions, preprocess
    from keras_vit.inspection.attention import attention_maps
    from keras_vit.inspection.rollout import attention_rollout
    from keras_vit.layers import (
        AddPositionEmbedding,
        ClassToken,
        MultiHeadAttentionPooling,
        PatchEmbedding,
        TransformerBlock,
    )
    from keras_vit.models import (
        R26_S32,
        R50_B16,
        R50_B32,
        R50_L16,
        R50_L32,
        BiT_R50x1,
        BiT_R50x2,
        BiT_R50x3,
        BiT_R101x1,
        BiT_R101x3,
        BiT_R152x1,
        BiT_R152x2,
        BiT_R152x4,
        BiT_R200x3,
        R_Ti16,
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
        features,
        freeze_blocks,
        list_variants,
        replace_head,
        resize,
        resize_position_embedding,
        resnet,
        vision_transformer,
    )
    from keras_vit.serving.export import export
    from keras_vit.training import losses, optimizers

    __all__ = [
        "R26_S32",
        "R50_B16",
        "R50_B32",
        "R50_L16",
        "R50_L32",
        "AddPositionEmbedding",
        "BiT_R50x1",
        "BiT_R50x2",
        "BiT_R50x3",
        "BiT_R101x1",
        "BiT_R101x3",
        "BiT_R152x1",
        "BiT_R152x2",
        "BiT_R152x4",
        "BiT_R200x3",
        "ClassToken",
        "MultiHeadAttentionPooling",
        "PatchEmbedding",
        "R_Ti16",
        "TransformerBlock",
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
        "attention_maps",
        "attention_rollout",
        "checkpoints",
        "data",
        "decode_predictions",
        "export",
        "features",
        "freeze_blocks",
        "from_checkpoint",
        "from_keras_hub",
        "layers",
        "list_checkpoints",
        "list_variants",
        "load_checkpoint",
        "losses",
        "models",
        "optimizers",
        "preprocess",
        "replace_head",
        "resize",
        "resize_position_embedding",
        "resnet",
        "save_checkpoint",
        "to_keras_hub",
        "vision_transformer",
    ]
