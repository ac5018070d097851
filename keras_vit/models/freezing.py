"""Which blocks of a model are trained."""

import re

from keras_vit.core.arguments import is_integer
from keras_vit.layers.base import set_trainable
from keras_vit.models.surgery import check_backbone


def freeze_blocks(model, num_blocks):
    """Freeze the first blocks of a Vision Transformer, and all layers before them.

    The embeddings, and the ResNet of a hybrid, are frozen with the blocks. All other layers are
    trained, even if they were frozen before. Compile the model after this call.

    Surgery and files keep what is frozen, layer by layer and variable by variable; a recipe decides
    for its own run:

    - `keras_vit.resize`, `keras_vit.replace_head` and `keras_vit.from_checkpoint` of a `.keras`
      file freeze in the new model what is frozen in the given one. A new head is trained.
    - `Model.save` and `keras.models.load_model` keep `trainable` of the model, of its layers, and
      of all sublayers and variables of this package's layers. Of a layer of Keras's own (the norms
      outside the blocks, `pre_logits` and `head`) a file records whether the layer is frozen, but
      not whether one of its variables is: freeze the whole layer.
    - `keras.models.clone_model` keeps `trainable` of layers alone, and files of other formats keep
      nothing of it.
    - A run of a recipe trains all but its `frozen_blocks`, whatever the model that it starts from
      has frozen.

    Args:
        model: a Vision Transformer of this package.
        num_blocks: number of blocks; 0 to train everything.

    Raises:
        ValueError: if `num_blocks` is not an integer, or the model has fewer blocks.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    >>> keras_vit.freeze_blocks(model, 11)
    >>> sorted({weight.path.split("/")[0] for weight in model.trainable_weights})
    ['block_11', 'encoder_norm', 'head']
    >>> resized = keras_vit.resize(model, 48)
    >>> len(resized.trainable_weights) == len(model.trainable_weights)
    True
    """
    check_backbone(model)
    blocks = [i for i, layer in enumerate(model.layers) if re.fullmatch(r"block_\d+", layer.name)]
    if not is_integer(num_blocks) or not 0 <= num_blocks <= len(blocks):
        raise ValueError(
            f"`num_blocks` must be an integer from 0 to {len(blocks)}, the model's Transformer "
            f"blocks. Received: num_blocks={num_blocks!r}"
        )
    end = blocks[num_blocks - 1] + 1 if num_blocks else 0
    set_trainable(model, True)
    for layer in model.layers[:end]:
        layer.trainable = False
