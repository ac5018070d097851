"""New models from trained ones: another head, another image size."""

import keras

from keras_vit.core.arguments import as_pair, check_integer
from keras_vit.layers import (
    AddPositionEmbedding,
    AddPositionEmbedding2D,
    AddSincosPositionEmbedding,
    PatchEmbedding,
)
from keras_vit.layers.base import copy_frozen, set_trainable
from keras_vit.layers.patches import grid_size
from keras_vit.layers.resnet import Bottleneck
from keras_vit.models.head import zero_head
from keras_vit.models.origin import origin_of, set_origin
from keras_vit.models.positions import resize_position_embedding

HEAD_LAYERS = ("pre_logits", "head")


def replace_head(model, num_classes):
    """Make a model with the same backbone and a new linear head, zero at the start.

    The hidden layer of a pre-training head (`pre_logits`) is dropped. The backbone's variables are
    copies: training the new model leaves the given one as it was. What is frozen in the backbone
    stays frozen, layer by layer and variable by variable; the new head is trained.

    Args:
        model: a model of this package, built, tuned or reloaded.
        num_classes: classes of the new head; 0 for no head.

    Returns:
        A Functional `keras.Model`, not compiled.

    Raises:
        ValueError: if the model has no backbone that this package knows, or `num_classes` is
            negative.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=1000, image_size=32, representation_size=192)
    >>> keras_vit.replace_head(model, num_classes=3).output.shape
    (None, 3)
    """
    check_integer("num_classes", num_classes, minimum=0)
    check_backbone(model)
    backbone = keras.Model(model.input, representation(model), name=model.name)
    copy = _clone(backbone, model.inputs[0].shape[1:])
    _copy_weights(backbone, copy)
    if num_classes:
        copy = keras.Model(copy.input, zero_head(num_classes)(copy.output), name=model.name)
    keep_frozen(model, copy, has_new_head=num_classes > 0)
    set_origin(copy, origin_of(model))
    return copy


def resize(model, image_size):
    """Make a model for another image size, with position embeddings interpolated in 2-D.

    The patch size stays, so the number of patches changes. A ResNet has no position embeddings, and
    takes any size. All other variables are copies: training the new model leaves the given one as
    it was. What is frozen stays frozen, layer by layer and variable by variable.

    Args:
        model: a model of this package, built, tuned or reloaded.
        image_size: int or `(height, width)`; of a model with patches multiples of what a token
            stands for: the patch size, in a hybrid times the ResNet's stride.

    Returns:
        A Functional `keras.Model`, not compiled.

    Raises:
        ValueError: if the patches do not tile the image, or the model is none of this package.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.resize(model, (48, 64)).input.shape
    (None, 48, 64, 3)
    """
    check_backbone(model)
    channels = model.inputs[0].shape[-1]
    resized = _clone(model, (*as_pair(image_size, "image_size"), channels))
    _copy_weights(model, resized)
    keep_frozen(model, resized)
    set_origin(resized, origin_of(model))
    return resized


def keep_frozen(model, new, has_new_head=False):
    """Freeze in a new model exactly what is frozen in the model that it was made from.

    Args:
        model: the model that the new one was made from.
        new: a model whose layers have the same names as those of `model`.
        has_new_head: whether the head of `new` is a new one, which is trained.
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


def token_grid(model):
    """`(rows, columns)` of the patches that are the model's tokens, or `None` for a ResNet."""
    check_backbone(model)
    grids = [layer.grid_size for layer in model.layers if isinstance(layer, PatchEmbedding)]
    return grids[0] if grids else None


def token_stride(model):
    """`(height, width)` of the part of an image that a token stands for, `(1, 1)` for a ResNet."""
    grid = token_grid(model)
    if grid is None:
        return (1, 1)
    return tuple(size // n for size, n in zip(model.inputs[0].shape[1:3], grid, strict=True))


def check_backbone(model):
    """Raises unless the model has patches or residual units of this package."""
    kinds = (PatchEmbedding, Bottleneck)
    if not any(isinstance(layer, kinds) for layer in getattr(model, "layers", [])):
        raise ValueError(
            "`model` must be a Vision Transformer with a `PatchEmbedding` layer, or a ResNet of "
            f"this package. Received: {type(model).__name__} {getattr(model, 'name', model)!r}, "
            "which is neither"
        )


def representation(model, head_layers=HEAD_LAYERS):
    """The symbolic output of the backbone: what goes into the first of the head's layers.

    Raises:
        ValueError: if the model seems to have a head of another name.
    """
    for layer in model.layers:
        if layer.name in head_layers:
            return layer.input
    dense = [layer.name for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    others = [name for name in dense if name not in HEAD_LAYERS]
    if others:
        raise ValueError(
            "`model` must have a classifier that is called `head`, or none. "
            f"Received: a model with the Dense layer {others[-1]!r}"
        )
    return model.outputs[0]


def check_classifier(model):
    """The number of classes of a model that maps RGB images to logits.

    Raises:
        ValueError: if it does anything else.
    """
    check_backbone(model)
    heads = [layer for layer in model.layers if layer.name == "head"]
    if not heads or len(model.inputs) != 1 or len(model.outputs) != 1:
        raise ValueError(
            "`model` must have one input, one output and a layer called `head`. "
            f"Received: a model of {len(model.inputs)} inputs, {len(model.outputs)} outputs and "
            f"{len(heads)} heads; `keras_vit.replace_head` makes one"
        )
    if heads[0].activation is not keras.activations.linear:
        raise ValueError(
            "`model` must return logits: a head without an activation. "
            f"Received: a head with the activation {heads[0].activation.__name__!r}"
        )
    if model.outputs[0] is not heads[0].output:
        raise ValueError(
            "`model` must return the logits of its layer `head`. Received: a model with layers "
            f"after it, the last of them {model.layers[-1].name!r}"
        )
    images, logits = model.inputs[0].shape, model.outputs[0].shape
    if images[-1] != 3 or len(logits) != 2:
        raise ValueError(
            "`model` must map RGB images to logits `(batch, num_classes)`. "
            f"Received: a model from {images} to {logits}"
        )
    return logits[-1]


def _clone(model, input_shape):
    """The same layers, new and untrained, on images of another shape."""
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
                # A buffer of its own: JAX gives up a variable's buffer when its model is trained.
                new.assign(keras.ops.copy(old.value))


def _zoomed(embeddings, shape):
    """Embeddings of rows or of columns, interpolated as those of all positions are."""
    embeddings = keras.ops.convert_to_numpy(embeddings.value)
    grid = embeddings.shape[:2]
    table = embeddings.reshape(1, -1, embeddings.shape[-1])
    return resize_position_embedding(table, tuple(shape[:2]), grid, 0).reshape(shape)


def _resized(table, source_grid, target_grid):
    table = keras.ops.convert_to_numpy(table.value)
    num_prefix_tokens = table.shape[1] - source_grid[0] * source_grid[1]
    return resize_position_embedding(table, target_grid, source_grid, num_prefix_tokens)
