"""Which blocks of a model are trained."""

import re

from keras_vit.models.surgery import check_backbone


def freeze_blocks(model, num_blocks):
    """Freezes the first blocks of a Vision Transformer, and all that stands before them.

    The embeddings, and the ResNet of a hybrid, are frozen with them. Other layers are trained, also
    those that were frozen before. A model is compiled after it.

    Args:
        model: a Vision Transformer of this package.
        num_blocks: how many blocks; 0 to train everything.

    Raises:
        ValueError: if the model has not so many blocks.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.freeze_blocks(model, 11)
    >>> sorted({weight.path.split("/")[0] for weight in model.trainable_weights})
    ['block_11', 'encoder_norm', 'head']
    """
    check_backbone(model)
    blocks = [i for i, layer in enumerate(model.layers) if re.fullmatch(r"block_\d+", layer.name)]
    if not 0 <= num_blocks <= len(blocks):
        raise ValueError(
            f"`num_blocks` must be from 0 to {len(blocks)}, the model's Transformer blocks. "
            f"Received: num_blocks={num_blocks}"
        )
    end = blocks[num_blocks - 1] + 1 if num_blocks else 0
    for index, layer in enumerate(model.layers):
        layer.trainable = index >= end
