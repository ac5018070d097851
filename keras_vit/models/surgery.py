"""New models from trained ones: another head, another image size, frozen blocks."""

import re

import keras

from keras_vit.core.arguments import as_pair, check_integer, grid_size, is_integer
from keras_vit.layers import (
    AddPositionEmbedding,
    AddPositionEmbedding2D,
    AddSincosPositionEmbedding,
)
from keras_vit.layers.base import copy_frozen, set_trainable
from keras_vit.models.base import ImageModel, pass_on
from keras_vit.models.head import zero_head
from keras_vit.models.parts import (
    HEAD_LAYERS,
    check_backbone,
    representation,
    token_grid,
    token_stride,
)
from keras_vit.models.positions import resize_position_embedding


def replace_head(model, num_classes):
    """Make a model with the same backbone and a new linear head, zero at the start.

    The hidden layer of a pre-training head (`pre_logits`) is dropped. The backbone's variables are
    copies: training the new model does not change the given one. Frozen layers and variables of the
    backbone stay frozen; the new head is trained.

    Args:
        model: a model of this package, built, tuned or reloaded.
        num_classes: classes of the new head; 0 for no head.

    Returns:
        A model of the class of the given one, not compiled.

    Raises:
        ValueError: if the model has no backbone of this package, or `num_classes` is negative.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=1000, image_size=32, representation_size=192)
    >>> keras_vit.replace_head(model, num_classes=3).output.shape
    (None, 3)
    """
    num_classes = check_integer("num_classes", num_classes, minimum=0)
    check_backbone(model)
    kind = ImageModel if isinstance(model, ImageModel) else keras.Model
    backbone = kind(model.input, representation(model), name=model.name)
    copy = _clone(backbone, model.inputs[0].shape[1:])
    _copy_weights(backbone, copy)
    if num_classes:
        copy = kind(copy.input, zero_head(num_classes)(copy.output), name=model.name)
    keep_frozen(model, copy, has_new_head=num_classes > 0)
    pass_on(
        model, copy, num_classes=num_classes, representation_size=None, classifier_activation=None
    )
    return copy


def resize(model, image_size):
    """Make a model for another image size, with position embeddings interpolated in 2-D.

    The patch size stays, so the number of patches changes. A ResNet has no position embeddings, and
    takes any size. All other variables are copies: training the new model does not change the given
    one. Frozen layers and variables stay frozen.

    Args:
        model: a model of this package, built, tuned or reloaded.
        image_size: int or `(height, width)`; multiples of the patch size, in a hybrid times the
            ResNet's stride.

    Returns:
        A model of the class of the given one, not compiled.

    Raises:
        ValueError: if the patches do not tile the image, or the model is not of this package.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.resize(model, (48, 64)).input.shape
    (None, 48, 64, 3)
    """
    image_size = as_pair(image_size, "image_size")
    check_backbone(model)
    channels = model.inputs[0].shape[-1]
    resized = _clone(model, (*image_size, channels))
    _copy_weights(model, resized)
    keep_frozen(model, resized)
    pass_on(model, resized, image_size=image_size)
    return resized


def freeze_blocks(model, num_blocks):
    """Freeze the first blocks of a Vision Transformer, and all layers before them.

    The embeddings, and the ResNet of a hybrid, are frozen with the blocks. All other layers are
    trained, even if they were frozen before. Compile the model after this call.

    Surgery and files keep what is frozen:

    - `keras_vit.resize`, `keras_vit.replace_head` and `keras_vit.from_checkpoint` of a `.keras`
      file keep frozen layers and variables. A new head is trained.
    - `Model.save` and `keras.models.load_model` keep `trainable` of the model, of its layers, and
      of all sublayers and variables of this package's layers. For Keras's own layers (the norms
      outside the blocks, `pre_logits` and `head`) a file records whether the layer is frozen, but
      not whether a single variable is: freeze the whole layer.
    - `keras.models.clone_model` only keeps `trainable` of layers. Files of other formats do not
      record it.
    - A run of a recipe trains all but its `frozen_blocks`, whatever is frozen in the model that it
      starts from.

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


def keep_frozen(model, new, has_new_head=False):
    """Freeze the same layers and variables in a new model as in the model it was made from.

    A new head is trained.
    """
    is_frozen_whole = has_new_head and not model.trainable
    new.trainable = has_new_head or model.trainable
    twins = {layer.name: layer for layer in new.layers}
    for layer in model.layers:
        if layer.name not in twins or (has_new_head and layer.name in HEAD_LAYERS):
            continue
        if is_frozen_whole:
            set_trainable(twins[layer.name], False)
        else:
            copy_frozen(layer, twins[layer.name])


def _clone(model, input_shape):
    """Copy the layers of a model, without weights, for images of another shape."""
    images = keras.Input(input_shape, name=model.inputs[0].name)
    inputs = keras.tree.map_structure(lambda _: images, model.input)
    grid = grid_size(tuple(input_shape[:2]), token_stride(model))

    def clone_layer(layer):
        config = layer.get_config()
        if isinstance(layer, (AddPositionEmbedding2D, AddSincosPositionEmbedding)):
            config["grid_size"] = grid
        return layer.__class__.from_config(config)

    return keras.models.clone_model(model, input_tensors=inputs, clone_function=clone_layer)


def _copy_weights(source, target):
    grids = token_grid(source), token_grid(target)
    for layer in source.layers:
        if not layer.weights:
            continue
        for old, new in zip(layer.weights, target.get_layer(layer.name).weights, strict=True):
            if isinstance(layer, AddPositionEmbedding):
                new.assign(_resized(old, *grids))
            elif isinstance(layer, AddPositionEmbedding2D):
                new.assign(_zoomed(old, new.shape))
            else:
                # Not shared: JAX deletes the buffers of a model in training.
                new.assign(keras.ops.copy(old.value))


def _zoomed(embeddings, shape):
    """Interpolate the embeddings of rows or of columns as a table with one column."""
    embeddings = keras.ops.convert_to_numpy(embeddings.value)
    grid = embeddings.shape[:2]
    table = embeddings.reshape(1, -1, embeddings.shape[-1])
    return resize_position_embedding(table, tuple(shape[:2]), grid, 0).reshape(shape)


def _resized(table, source_grid, target_grid):
    table = keras.ops.convert_to_numpy(table.value)
    num_prefix_tokens = table.shape[1] - source_grid[0] * source_grid[1]
    return resize_position_embedding(table, target_grid, source_grid, num_prefix_tokens)
