"""New models from trained ones: another head, another image or patch size, frozen blocks."""

import contextlib
import math
import re
from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_vit.core.arguments import as_pair, grid_size, is_integer
from keras_vit.layers import AddPositionEmbedding, AddPositionEmbedding2D, PatchEmbedding
from keras_vit.layers.layer import (
    LORA_KERNELS,
    Dense,
    RecordsFrozenOrQuantized,
    all_layers,
    frozen_paths,
    restore_frozen,
    set_trainable,
)
from keras_vit.models.image_model import (
    ImageModel,
    copy_attributes,
    functional,
    image_spec_of,
    unit_norm,
    zero_head,
)
from keras_vit.models.interpolation import (
    adapt_kernel,
    resize_line_embedding,
    resize_patch_kernel,
    resize_position_embedding,
    resize_relative_embedding,
)
from keras_vit.models.options import NO_HEAD_LAYERS, VitOptions
from keras_vit.models.structure import (
    BLOCKS,
    HEAD_LAYERS,
    POSITION_LAYERS,
    ZERO_SHOT_LAYERS,
    check_backbone,
    first_convolution,
    has_blocks,
    has_distillation_token,
    is_segmenter,
    named_weights,
    representation,
    stored_grid,
    stored_size,
    token_stride,
)
from keras_vit.models.vit import check_grid


def replace_head(model: keras.Model, num_classes: int) -> keras.Model:
    """Make a model with the same backbone and a new linear head, whose weights are zero.

    The layers before the head (`projection`, `pre_logits`, `unit_norm`) are dropped. The backbone's
    variables are copies: training the new model does not change `model`. Frozen layers and
    variables of the backbone stay frozen, and the new head is trained. If the model has a
    distillation token, the new head has two classifiers.

    Args:
        model: a model of this package, new, trained or loaded.
        num_classes: number of classes of the new head; 0 for no head.

    Returns:
        A model of the class of `model`, not compiled.

    Raises:
        ValueError: if the model has no backbone or is a segmenter.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=1000, image_size=32, representation_size=192)
    >>> keras_vit.replace_head(model, num_classes=3).output.shape
    (None, 3)
    """
    check_backbone(model)
    if num_classes and is_segmenter(model):
        raise ValueError("`model` must classify images. Received: a segmenter")
    layers, changes = [], {}
    if num_classes:
        layers = [zero_head(num_classes, distilled=has_distillation_token(model))]
    if isinstance(getattr(model, "options", None), VitOptions):
        changes = NO_HEAD_LAYERS
    return _with_head(model, HEAD_LAYERS, layers, num_classes=num_classes, **changes)


def zero_shot(
    model: keras.Model,
    embeddings: npt.ArrayLike,
    class_names: Sequence[str] | None = None,
    scale: float = 100.0,
    bias: float = 0.0,
) -> keras.Model:
    """Make a classifier from an image tower and the text embeddings of the classes.

    The logit of a class is `scale * cosine(image, text) + bias`. The new model is a classifier like
    any other: it has a layer `unit_norm`, which divides the embedding of an image by its Euclidean
    norm, and a linear head, whose kernel is `scale` times the normalized text embeddings. So the
    model can be evaluated, exported and fine-tuned. The variables are copies. Frozen layers stay
    frozen, and the new head is trained.

    For SigLIP, give the scale and the bias of the model, and set `thresholds` of the new model:
    its probabilities are then sigmoids, with which SigLIP was trained.

    Args:
        model: a Vision Transformer of this package that returns the embeddings of images: an image
            tower of CLIP with its projection, or of SigLIP (`num_classes=0`). If the model has a
            head, the head is replaced.
        embeddings: float array `(classes, width)`, the text tower's outputs of any norms. For
            several prompts per class, use the mean of the normalized embeddings.
        class_names: names of the classes; `None` for no names.
        scale: factor of the cosine similarity: `exp(logit_scale)` of CLIP and SigLIP, about 100 in
            the released models of CLIP.
        bias: number that is added to each logit: `logit_bias` of SigLIP.

    Returns:
        A model of the class of `model`, not compiled.

    Raises:
        ValueError: if `embeddings` do not have the width of the model's output, the number of names
            is not the number of classes, or the model is not a Vision Transformer.

    Reference:
        Section 3.1.2 of CLIP (arXiv 2103.00020); SigLIP (arXiv 2303.15343). WiSE-FT (arXiv
        2109.01903) starts fine-tuning from such a linear head.

    Example:
    >>> tower = keras_vit.ViT_Ti16(num_classes=0, image_size=32, projection_dim=6)
    >>> texts = np.random.default_rng(0).normal(size=(2, 6))
    >>> model = keras_vit.zero_shot(tower, texts, ["cat", "dog"])
    >>> model.output_shape, model.class_names
    ((None, 2), ('cat', 'dog'))
    """
    if not has_blocks(model):
        raise ValueError(
            f"`model` must be a Vision Transformer. Received: the model {model.name!r}"
        )
    texts, images = np.asarray(embeddings, "float64"), representation(model, ZERO_SHOT_LAYERS)
    if texts.ndim != 2 or tuple(images.shape) != (None, texts.shape[1]):
        raise ValueError(
            "`embeddings` must be (classes, width), with the width of the model's output "
            f"{tuple(images.shape)}. Received: an array {texts.shape}"
        )
    head = zero_head(len(texts))
    options = {"num_classes": len(texts), "unit_norm": True}
    new = _with_head(model, ZERO_SHOT_LAYERS, [unit_norm(), head], **options)
    norms = np.linalg.norm(texts, axis=1, keepdims=True)
    kernel = scale * (texts / np.where(norms > 0, norms, np.nan)).T
    if not np.isfinite(kernel).all():
        raise ValueError(
            "`embeddings` and `scale` must be finite, and no row of `embeddings` may be zero. "
            f"Received: scale={scale}, rows of the norms {norms.min()} to {norms.max()}"
        )
    head.set_weights([kernel, np.full(len(texts), bias)])
    new.class_names = class_names
    return new


def _with_head(model, old_layers, layers, **changes):
    """Return a copy of a model with new last layers and changed options.

    The layers from the first one named in `old_layers` on are dropped.
    """
    model = with_float_kernels(model)
    new = copy_model(functional(model, representation(model, old_layers)))
    outputs = new.output
    for layer in layers:
        outputs = layer(outputs)
    new = functional(new, outputs)
    keep_frozen(model, new, has_new_head=bool(layers))
    copy_attributes(model, new, keeps_head=False, classifier_activation=None, **changes)
    return new


def resize(
    model: keras.Model,
    image_size: int | tuple[int, int] | None = None,
    patch_size: int | tuple[int, int] | None = None,
) -> keras.Model:
    """Make a model for another image or patch size, with position embeddings interpolated in 2-D.

    A ResNet has no position embeddings, and takes any image size. The new model has copies of the
    variables: training it does not change `model`. Frozen layers and variables stay frozen.

    Args:
        model: a model of this package, new, trained or loaded.
        image_size: int or `(height, width)`, multiples of the patch size; in a hybrid, multiples of
            the patch size times the ResNet's stride. `None` if images may have any such size: the
            model then interpolates its position embeddings in each call. If `patch_size` is given,
            `None` keeps the image size.
        patch_size: int or `(height, width)`, to change the kernel of the patch embedding by
            `resize_patch_kernel`, and to interpolate position embeddings as in FlexiViT. `None`
            keeps the patch size, and interpolates position embeddings bilinearly, as in the ViT
            paper. For relative position embeddings, see
            `keras_vit.models.interpolation.resize_relative_embedding`.

    Returns:
        A model of the class of `model`, not compiled.

    Raises:
        ValueError: if the patches do not tile the image, the model is not of this package,
            `patch_size` is given for a ResNet, or images of any size are requested for a model with
            rotary or relative position embeddings or axial blocks.

    Reference:
        Section 3.2 of the ViT paper (arXiv 2010.11929); FlexiViT (arXiv 2212.08013).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.resize(model, (48, 64)).input.shape
    (None, 48, 64, 3)
    >>> keras_vit.resize(model, patch_size=8).get_layer("patch_embedding").grid_size
    (4, 4)
    """
    return resize_by("bilinear", model, image_size, patch_size)


def resize_by(method, model, image_size=None, patch_size=None):
    """Resize a model as `resize` does, with a `method` of `resize_position_embedding`.

    With a `patch_size`, `method` is ignored, and position embeddings are resized as in FlexiViT.
    """
    check_backbone(model)
    model = with_float_kernels(model)
    *shape, channels = model.inputs[0].shape[1:]
    if image_size is not None:
        shape = as_pair(image_size, "image_size")
    elif patch_size is None:
        shape = (None, None)
    images = keras.Input((*shape, channels), name=model.inputs[0].name)
    changes = {"image_size": None if None in shape else tuple(shape)}
    if patch_size is not None:
        changes["patch_size"] = as_pair(patch_size, "patch_size")
        if not any(isinstance(layer, PatchEmbedding) for layer in model.layers):
            raise ValueError(f"`patch_size` must be None for a ResNet. Received: {patch_size!r}")
    stride, stored = _new_stride(model, changes.get("patch_size")), stored_grid(model)
    takes_any_size = None in shape
    grid = stored if takes_any_size else grid_size(tuple(shape), stride)

    def layer(old):
        new = {}
        if isinstance(old, PatchEmbedding) and patch_size is not None:
            new["patch_size"] = changes["patch_size"]
        if isinstance(old, POSITION_LAYERS):
            new["patch_size"], new["grid_size"] = stride if takes_any_size else None, grid
            if isinstance(old, AddPositionEmbedding):
                num_prefix_tokens = old.embedding.shape[1] - math.prod(stored)
                new["num_prefix_tokens"] = num_prefix_tokens if takes_any_size else 0
                new["grid_size"] = grid if takes_any_size else None
        if isinstance(old, BLOCKS):
            config = old.get_config()
            names = [name for name in config if name.endswith("grid_size") and config[name]]
            if names:
                check_grid(None if takes_any_size else grid)
            new |= dict.fromkeys(names, grid)
        return copy_layer(old, **new)

    def call(new, *args, **options):
        if isinstance(new, POSITION_LAYERS):
            options.pop("images", None)
            args = (*args[:1], images) if takes_any_size else args[:1]
        return new(*args, **options)

    method = method if patch_size is None else "linear"
    resized = copy_model(model, layer, images=images, call=call, method=method)
    copy_attributes(model, resized, **changes)
    if isinstance(resized, ImageModel) and resized.input_shape != model.input_shape:
        # If a model takes images of any size, its size is the one its position embeddings fit.
        resized.image_spec = model.image_spec.at(stored_size(resized), stored_size(model))
    if patch_size is not None:
        _keep_mean_of_images(model, resized)
    return resized


def with_channels(model, channels):
    """Make a model for images with another number of channels, with the first kernel adapted.

    The kernel of the patch projection, or of the first convolution of a hybrid or a ResNet, is
    adapted as in timm (see `keras_vit.models.interpolation.adapt_kernel`). The kernel of a patch
    projection includes the deviation of each channel, and its bias the mean, so that images are in
    [-1, 1]; see `keras_vit.core.image_spec.ImageSpec` for those of the new channels.

    - One channel: the bias stays. Without a ResNet, a gray image has the same outputs as the three
      equal channels in the old model, for any normalization.
    - More channels: the bias is corrected so that the mean image has the same tokens as before,
      as in timm for images that are normalized with the repeated mean and deviation.
    - Hybrids and ResNets: the kernel that is adapted is the stored one, as in timm, and it is
      standardized afterwards. The outputs for gray images are only similar.

    Args:
        model: a model of this package, new, trained or loaded.
        channels: number of channels of the new model.

    Returns:
        A model of the class of `model`, not compiled.

    Example:
    >>> from keras_vit.models.surgery import with_channels
    >>> with_channels(keras_vit.ViT_Ti16(num_classes=10, image_size=32), 13).input.shape
    (None, 32, 32, 13)
    """
    images = keras.Input((*model.inputs[0].shape[1:3], channels), name=model.inputs[0].name)
    kernel = first_convolution(model).kernel
    value = ops.convert_to_numpy(ops.cast(kernel, "float32"))
    new = copy_model(model, images=images, values={kernel.path: adapt_kernel(value, channels)})
    copy_attributes(model, new, image_channels=channels)
    if isinstance(new, ImageModel):
        new.image_spec = model.image_spec.with_channels(channels)
    if channels > 1:
        _keep_mean_of_images(model, new)
    return new


def freeze_blocks(model: keras.Model, num_blocks: int) -> None:
    """Freeze the first blocks of a Vision Transformer, and all layers before them.

    Freezing the first block also freezes the ResNet of a hybrid, the patch embedding, and the
    position embeddings, even if all blocks share them. All other layers are trained, even if they
    were frozen before. Compile the model after this call.

    Copies and files of the model keep what is frozen as follows:

    - `keras_vit.resize`, `keras_vit.replace_head` and `keras_vit.from_checkpoint` of a `.keras`
      file keep frozen layers and variables. A new head is trained.
    - `Model.save` and `keras.models.load_model` keep `trainable` of the model, of its layers, and
      of all sublayers and variables of this package's layers. For Keras's own layers (the norms
      outside the blocks, `pre_logits` and `head`) a file does not record single frozen variables.
    - `keras.models.clone_model` only keeps `trainable` of layers. Files of other formats do not
      record `trainable`.
    - Training by a recipe freezes only the recipe's `frozen_blocks`, whatever is frozen in the
      starting model.

    Args:
        model: a Vision Transformer of this package.
        num_blocks: number of blocks to freeze; 0 to train all layers.

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
    if lora_layers(model):
        freeze_base(model)
    for layer in model.layers[:end]:
        layer.trainable = False


def freeze_base(model):
    """Train only the matrices of LoRA, if there are any, and the head."""
    set_trainable(model, True)
    for layer in model.layers:
        has_lora = lora_layers(layer)
        if layer.name not in HEAD_LAYERS and not has_lora:
            set_trainable(layer, False)
        for weight in layer.weights if has_lora else ():
            weight.trainable = weight.name.startswith("lora_")


def dense_layers(model):
    """Return the projections and MLP layers of a layer or a model, at any depth."""
    return [layer for layer in all_layers(model) if isinstance(layer, Dense)]


def lora_layers(model):
    """Return the layers with LoRA, at any depth of a layer or a model."""
    return [layer for layer in dense_layers(model) if layer.lora_rank]


def with_float_kernels(model):
    """Return an equivalent model without LoRA and with float kernels; `model` does not change.

    If `model` has neither LoRA nor quantized kernels, `model` itself is returned. Otherwise a new
    model is returned, in which nothing is frozen.
    """
    kernels = float_kernels(model)
    if not kernels:
        return model

    def layer(old):
        config, changes = old.get_config(), {"trainable": True}
        if any(f"{part.path}/kernel" in kernels for part in all_layers(old)):
            changes["dtype"] = old.dtype_policy.name.rpartition("_from_")[2]
            changes |= {"lora": None} if "lora" in config else {}
        return copy_layer(old, **changes)

    new = copy_model(model, layer, values=kernels, keeps_frozen=False)
    copy_attributes(model, new)
    return new


def float_kernels(model):
    """Return the `float_kernel` of each layer with LoRA or a quantized kernel, by path."""
    return {
        f"{part.path}/kernel": float_kernel(part)
        for part in all_layers(model)
        if isinstance(part, keras.layers.Dense) and (part.quantization_mode or part.lora_rank)
    }


def float_kernel(layer):
    """Return the float kernel that is equivalent to a layer's quantized kernel and LoRA."""
    kernel = base_kernel(layer)
    if not getattr(layer, "lora_rank", None):
        return kernel
    product = ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
    return ops.cast(kernel, "float32") + product * (layer.lora_alpha / layer.lora_rank)


def base_kernel(layer):
    """Return the kernel of a dense layer as floats, without LoRA."""
    kernel = layer.kernel
    if layer.quantization_mode not in ("int8", "int4"):
        return kernel
    kernel = ops.cast(kernel, "float32")
    if getattr(layer, "kernel_zero", None) is None:
        return kernel / layer.kernel_scale
    # Each group of rows has a separate scale and zero point.
    groups = ops.cast(layer.g_idx, "int32")
    scale, zero = (
        ops.take(ops.cast(values, "float32"), groups, axis=0)
        for values in (layer.kernel_scale, layer.kernel_zero)
    )
    return (kernel - zero) * scale


def copy_layer(layer, **changes):
    """Return a new layer with the same constructor arguments, except for changes.

    Kernels that are quantized in `layer` are quantized in the new layer, unless `dtype` is changed.
    """
    new = type(layer).from_config({**layer.get_config(), **changes})
    has_record = isinstance(layer, RecordsFrozenOrQuantized) and "dtype" not in changes
    config = layer.get_build_config() if has_record and dense_layers(layer) else {}
    if "quantized" in config:
        new.build_from_config(config)
    return new


def copy_model(
    model,
    layer=copy_layer,
    *,
    images=None,
    call=None,
    values=None,
    method="bilinear",
    keeps_frozen=True,
):
    """Copy a model, its weights, and which layers and variables are frozen.

    Args:
        model: a Functional model.
        layer: function that takes a layer of the model and returns the layer of the copy.
        images: the input of the copy; `None` for an input like the input of the model.
        call: function that calls a layer of the copy, as in `keras.models.clone_model`.
        values: values to use instead of the model's, by the paths of the model's variables.
        method: how position embeddings are resized, see `resize_position_embedding`.
        keeps_frozen: whether layers and variables that are frozen in the model are frozen in the
            copy.

    Returns:
        A model of the class of `model`, without metadata: see `copy_attributes`.
    """
    inputs = images
    if images is not None:
        inputs = keras.tree.map_structure(lambda _: images, model.input)
    with strategy_scope(model):
        new = keras.models.clone_model(
            model, input_tensors=inputs, clone_function=layer, call_function=call
        )
    _copy_weights(model, new, values or {}, method)
    if keeps_frozen:
        keep_frozen(model, new)
    return new


def strategy_scope(model):
    """Return a context manager: the scope of the TensorFlow strategy of a model, if it has one."""
    strategy = getattr(model, "distribute_strategy", None)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def keep_frozen(model, new, has_new_head=False):
    """Freeze the same layers and variables in a new model as in the model it was made from.

    If the new model has a new head, the head is not frozen.
    """
    is_frozen_whole = has_new_head and not model.trainable
    new.trainable = has_new_head or model.trainable
    twins = {layer.name: layer for layer in new.layers}
    for layer in model.layers:
        twin = twins.get(layer.name)
        if twin is None or (has_new_head and layer.name == "head"):
            continue
        if is_frozen_whole:
            set_trainable(twin, False)
        else:
            twin.trainable = layer.trainable
            restore_frozen(twin, frozen_paths(layer))


def _new_stride(model, patch_size):
    stride = token_stride(model)
    if patch_size is None:
        return stride
    (old,) = (layer.patch_size for layer in model.layers if isinstance(layer, PatchEmbedding))
    # The stride is the patch size, in a hybrid times the stride of the ResNet, which stays.
    return tuple(s // o * new for s, o, new in zip(stride, old, patch_size, strict=True))


def _copy_weights(source, target, values, method):
    grids = stored_grid(source), stored_grid(target)
    named = named_weights(source)
    for name, new in named_weights(target).items():
        # A copy may have matrices of LoRA that the model does not have.
        if new.name in LORA_KERNELS and name not in named:
            continue
        old, layer = named[name], target.get_layer(name.partition("/")[0])
        is_given = old.path in values
        new.assign(values[old.path] if is_given else _resized(old, new, layer, grids, method))


def _resized(old, new, layer, grids, method):
    """Return the value of a variable, resized if a copy has another grid or patch size."""
    is_table = isinstance(layer, (AddPositionEmbedding, AddPositionEmbedding2D))
    if not is_table and old.name != "relative_embedding" and old.shape == new.shape:
        # Copied, because a training step on JAX deletes the buffers of the model.
        return ops.copy(old.value)
    value, size = ops.convert_to_numpy(old.value), tuple(new.shape[:2])
    if isinstance(layer, AddPositionEmbedding):
        old_grid, new_grid = grids
        num_prefix = old.shape[1] - math.prod(old_grid)
        return resize_position_embedding(value, new_grid, old_grid, num_prefix, method)
    if is_table:
        return resize_line_embedding(value, size, method)
    if old.name == "relative_embedding":
        return resize_relative_embedding(value, *grids, method)
    return resize_patch_kernel(value, size)


def _keep_mean_of_images(source, target):
    """Correct the patch bias so that the mean image has the same tokens as in the source."""
    layer = first_convolution(target)
    if not layer.use_bias or set(image_spec_of(source).mean) == {0.5}:
        return

    def tokens(model):
        """Return the tokens of the mean image, without bias."""
        kernel = ops.convert_to_numpy(first_convolution(model).kernel).sum((0, 1))
        return (kernel * (2 * np.reshape(image_spec_of(model).mean, (-1, 1)) - 1)).sum(axis=0)

    layer.bias.assign_add(tokens(source) - tokens(target))
