"""New models from trained ones: another head, another image or patch size, frozen blocks."""

import math
import re

import keras
import numpy as np

from keras_vit.core.arguments import as_pair, check_integer, grid_size, is_integer, names_nearest
from keras_vit.layers import AddPositionEmbedding, AddPositionEmbedding2D, PatchEmbedding
from keras_vit.layers.base import copy_frozen, set_trainable
from keras_vit.models.base import CENTERED, ImageModel, pass_on
from keras_vit.models.checks import GRID_ARGUMENTS, known_grids
from keras_vit.models.kernels.lora import freeze_base, lora_parts, warn_if_compiled
from keras_vit.models.kernels.plain import plain
from keras_vit.models.parts import (
    BLOCKS,
    HEAD_LAYERS,
    POSITION_LAYERS,
    check_backbone,
    check_no_segmenter,
    has_distillation_token,
    representation,
    stored_grid,
    token_stride,
)
from keras_vit.models.positions import (
    resize_line_embedding,
    resize_patch_kernel,
    resize_position_embedding,
    resize_relative_embedding,
)
from keras_vit.models.stem_and_head import zero_head


@names_nearest
def replace_head(model: keras.Model, num_classes: int) -> keras.Model:
    """Make a model with the same backbone and a new linear head, zero at the start.

    The layers of a pre-training head (`projection`, `pre_logits`) are dropped. The backbone's
    variables are copies: training the new model does not change the given one. Frozen layers and
    variables of the backbone stay frozen; the new head is trained. If the model has a
    distillation token, the new head has two classifiers.

    Args:
        model: a model of this package, built, tuned or reloaded.
        num_classes: classes of the new head; 0 for no head.

    Returns:
        A model of the class of the given one, not compiled.

    Raises:
        ValueError: if the model has no backbone or is a segmenter, or `num_classes` is negative.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=1000, image_size=32, representation_size=192)
    >>> keras_vit.replace_head(model, num_classes=3).output.shape
    (None, 3)
    """
    num_classes = check_integer("num_classes", num_classes, minimum=0)
    check_backbone(model)
    if num_classes:
        check_no_segmenter(model)
    model = plain(model)
    kind = ImageModel if isinstance(model, ImageModel) else keras.Model
    backbone = kind(model.input, representation(model), name=model.name)
    copy = _clone(backbone, model.inputs[0].shape[1:])
    _copy_weights(backbone, copy)
    if num_classes:
        head = zero_head(num_classes, distilled=has_distillation_token(copy))
        copy = kind(copy.input, head(copy.output), name=model.name)
    keep_frozen(model, copy, has_new_head=num_classes > 0)
    pass_on(
        model,
        copy,
        num_classes=num_classes,
        representation_size=None,
        projection_dim=None,
        classifier_activation=None,
    )
    return copy


@names_nearest
def resize(
    model: keras.Model,
    image_size: int | tuple[int, int] | None = None,
    patch_size: int | tuple[int, int] | None = None,
) -> keras.Model:
    """Make a model for another image or patch size, with position embeddings interpolated in 2-D.

    A ResNet has no position embeddings, and takes any image size. All other variables are copies:
    training the new model does not change the given one. Frozen layers and variables stay frozen.

    Args:
        model: a model of this package, built, tuned or reloaded.
        image_size: int or `(height, width)`; multiples of the patch size, in a hybrid times the
            ResNet's stride. `None` for any such size: the model stores the position embeddings as
            they are, and interpolates them in each call. With `patch_size`, `None` is for the size
            of the model.
        patch_size: int or `(height, width)`; the kernel of the patches is changed by
            `resize_patch_kernel`, and the position embeddings as in FlexiViT. `None` for that of
            the model, whose position embeddings are interpolated bilinearly, as in the ViT paper;
            relative ones by `keras_vit.models.positions.resize_relative_embedding`.

    Returns:
        A model of the class of the given one, not compiled.

    Raises:
        ValueError: if the patches do not tile the image, the model is not of this package, a
            ResNet is to have patches, or a model with rotary or relative positions or axial blocks
            is to take any size.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929); FlexiViT (arXiv 2212.08013).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.resize(model, (48, 64)).input.shape
    (None, 48, 64, 3)
    >>> keras_vit.resize(model, patch_size=8).get_layer("patch_embedding").grid_size
    (4, 4)
    """
    check_backbone(model)
    model = plain(model)
    changes = {}
    if patch_size is not None:
        changes["patch_size"] = as_pair(patch_size, "patch_size")
        if not any(isinstance(layer, PatchEmbedding) for layer in model.layers):
            raise ValueError(
                f"`patch_size` must be None for a ResNet. Received: patch_size={patch_size!r}"
            )
    *shape, channels = model.inputs[0].shape[1:]
    if image_size is not None:
        shape = as_pair(image_size, "image_size")
    elif patch_size is None:
        shape = (None, None)
    resized = _clone(model, (*shape, channels), changes.get("patch_size"))
    _copy_weights(model, resized, method="linear" if changes else "bilinear")
    keep_frozen(model, resized)
    pass_on(model, resized, image_size=None if None in shape else tuple(shape), **changes)
    return resized


def freeze_blocks(model: keras.Model, num_blocks: int) -> None:
    """Freeze the first blocks of a Vision Transformer, and all layers before them.

    The embeddings, and the ResNet of a hybrid, are frozen with the blocks; position embeddings that
    all blocks share are frozen with the first. All other layers are trained, even if they were
    frozen before. Compile the model after this call.

    Surgery and files keep what is frozen:

    - `keras_vit.resize`, `keras_vit.replace_head` and `keras_vit.from_checkpoint` of a `.keras`
      file keep frozen layers and variables. A new head is trained.
    - `Model.save` and `keras.models.load_model` keep `trainable` of the model, of its layers, and
      of all sublayers and variables of this package's layers. For Keras's own layers (the norms
      outside the blocks, `pre_logits` and `head`) a file does not record single frozen variables.
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
    warn_if_compiled(model)
    if lora_parts(model):
        freeze_base(model)
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


def _clone(model, input_shape, patch_size=None):
    """Copy the layers of a model, without weights, for images and patches of another size."""
    images = keras.Input(input_shape, name=model.inputs[0].name)
    inputs = keras.tree.map_structure(lambda _: images, model.input)
    stride, stored = _new_stride(model, patch_size), stored_grid(model)
    is_free = None in input_shape[:2]
    grid = stored if is_free else grid_size(tuple(input_shape[:2]), stride)

    def clone_layer(layer):
        config = layer.get_config()
        if patch_size is not None and isinstance(layer, PatchEmbedding):
            config["patch_size"] = patch_size
        if isinstance(layer, POSITION_LAYERS):
            is_learned = isinstance(layer, AddPositionEmbedding)
            config["grid_size"] = grid if is_free or not is_learned else None
            config["patch_size"] = stride if is_free else None
            if is_learned:
                num_prefix_tokens = layer.embedding.shape[1] - math.prod(stored)
                config["num_prefix_tokens"] = num_prefix_tokens if is_free else 0
        if isinstance(layer, BLOCKS):
            names = [name for name in GRID_ARGUMENTS if config.get(name)]
            config |= known_grids(names, None if is_free else grid)
        return layer.__class__.from_config(config)

    def call(layer, *args, **options):
        if isinstance(layer, POSITION_LAYERS):
            options.pop("images", None)
            args = (*args[:1], images) if is_free else args[:1]
        return layer(*args, **options)

    return keras.models.clone_model(
        model, input_tensors=inputs, clone_function=clone_layer, call_function=call
    )


def _new_stride(model, patch_size):
    stride = token_stride(model)
    if patch_size is None:
        return stride
    (old,) = (layer.patch_size for layer in model.layers if isinstance(layer, PatchEmbedding))
    # In a hybrid, times the stride of the ResNet.
    return tuple(s // o * new for s, o, new in zip(stride, old, patch_size, strict=True))


def _copy_weights(source, target, method="bilinear"):
    grids = stored_grid(source), stored_grid(target)
    for layer in source.layers:
        if not layer.weights:
            continue
        for old, new in zip(layer.weights, target.get_layer(layer.name).weights, strict=True):
            is_table = isinstance(layer, (AddPositionEmbedding, AddPositionEmbedding2D))
            if not is_table and old.name != "relative_embedding" and old.shape == new.shape:
                # Not shared: JAX deletes the buffers of a model in training.
                new.assign(keras.ops.copy(old.value))
                continue
            value, size = keras.ops.convert_to_numpy(old.value), tuple(new.shape[:2])
            if isinstance(layer, AddPositionEmbedding):
                old_grid, new_grid = grids
                num_prefix = old.shape[1] - math.prod(old_grid)
                value = resize_position_embedding(value, new_grid, old_grid, num_prefix, method)
            elif is_table:
                value = resize_line_embedding(value, size, method)
            elif old.name == "relative_embedding":
                value = resize_relative_embedding(value, *grids, method)
            else:
                value = resize_patch_kernel(value, size)
            new.assign(value)
    _keep_mean_of_images(source, target)


def _keep_mean_of_images(source, target):
    """Let the kernel see what it saw before it absorbed the normalization: the mean as zero."""
    mean, _ = getattr(source, "normalization", CENTERED)
    layers = [
        model.get_layer(layer.name)
        for model in (source, target)
        for layer in source.layers
        if isinstance(layer, PatchEmbedding) and layer.projection.use_bias
    ]
    if not layers or set(mean) == {0.5}:
        return
    old, new = (keras.ops.convert_to_numpy(layer.projection.kernel).sum((0, 1)) for layer in layers)
    change = ((new - old) * (1 - 2 * np.reshape(mean, (-1, 1)))).sum(axis=0)
    layers[1].projection.bias.assign_add(change)
