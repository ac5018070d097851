"""Features of images: the representation that the head sees, or the outputs of layers."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.core.arguments import check_choice
from keras_vit.layers import ClassTokenPooling
from keras_vit.models.image_model import check_images
from keras_vit.models.inference import for_inference
from keras_vit.models.structure import (
    check_backbone,
    has_class_output,
    num_prefix_tokens,
    representation,
    token_grid,
    token_layer_names,
)


def features(
    model: keras.Model,
    images: Any,
    layers: Sequence[str] | None = None,
    as_maps: bool = False,
    batch_size: int = 32,
) -> np.ndarray | dict[str, np.ndarray]:
    """Compute the representation of images, or the outputs of layers.

    Args:
        model: a model of this package, new, trained or loaded.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of such
            arrays.
        layers: names of layers whose outputs to return, such as `["block_5", "encoder_norm"]`;
            `None` for the representation that the head sees (after `pre_logits`, if there is one).
        as_maps: whether to return token sequences as `(batch, rows, columns, width)` without the
            class token, instead of `(batch, tokens, width)`. Feature maps of a ResNet are returned
            as they are.
        batch_size: number of images per step.

    Returns:
        A NumPy array, the representation; or a dictionary of arrays, one for each layer.

    Raises:
        ValueError: if the model has no layer of a name in `layers`, `as_maps` is true and an output
            is neither a token sequence nor a feature map, or `images` is an array that is not
            scaled to [-1, 1].

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> images = np.zeros((2, 32, 32, 3))
    >>> keras_vit.features(model, images).shape
    (2, 192)
    >>> keras_vit.features(model, images, layers=["block_5"], as_maps=True)["block_5"].shape
    (2, 2, 2, 192)
    """
    check_backbone(model)
    check_images(images)
    if layers is None:
        outputs = {"representation": representation(model, ("head",))}
    else:
        outputs = {name: model.get_layer(name).output for name in layers}
    # Float32, because NumPy has no bfloat16.
    as_float32 = keras.layers.Activation("linear", dtype="float32")
    extractor = keras.Model(model.input, {name: as_float32(x) for name, x in outputs.items()})
    arrays = for_inference(extractor).predict(images, batch_size=batch_size, verbose=0)
    if as_maps:
        grid = token_grid(model, images)
        arrays = {name: _as_map(name, array, grid) for name, array in arrays.items()}
    if layers is None:
        return arrays["representation"]
    # Restore the order of `layers`, as some backends sort the outputs by name.
    return {name: arrays[name] for name in outputs}


def feature_extractor(model, layers=None):
    """Return a model that maps images to features `(batch, width)`, in float32.

    Args:
        model: a model of this package.
        layers: names of layers, such as `["block_8", "encoder_norm"]`. Their class tokens are
            concatenated, or the means of their patches if the model's output does not depend on
            the class token. `None` for the input of the head.

    Raises:
        ValueError: if the model does not map an image to a vector, or has no layer of a name in
            `layers`.

    Reference:
        The linear evaluation of DINOv2 (arXiv 2304.07193), appendix B.3, which also applies the
        last norm to each block.
    """
    check_backbone(model)
    if not layers:
        # The head is left out, so that the key of cached features does not depend on it.
        output = representation(model, ("head",))
    else:
        pooled = [_pooled(model, name) for name in dict.fromkeys(layers)]
        # The key must not depend on an automatic name, either.
        join = keras.layers.Concatenate(dtype="float32", name="all_layers")
        output = pooled[0] if len(pooled) == 1 else join(pooled)
    shape = model.inputs[0].shape
    if len(model.inputs) != 1 or len(shape) != 4 or len(output.shape) != 2:
        raise ValueError(
            "`model` must map images to one vector per image. "
            f"Received: a model from {[tuple(image.shape) for image in model.inputs]} to "
            f"{tuple(output.shape)}"
        )
    # Float32, because NumPy has no bfloat16.
    as_float32 = keras.layers.Activation("linear", dtype="float32", name="features")
    return keras.Model(model.input, as_float32(output), name="extractor")


def _pooled(model, name):
    """Return the output of a layer as one vector per image."""
    output = model.get_layer(name).output
    options = {"dtype": "float32", "name": f"{name}_pooling"}
    if len(output.shape) == 4:
        return keras.layers.GlobalAveragePooling2D("channels_last", **options)(output)
    if len(output.shape) == 2:
        return output
    # The first patch must not be taken for the class token.
    check_choice("layers", name, token_layer_names(model))
    if has_class_output(model):
        return ClassTokenPooling(**options)(output)
    crop = keras.layers.Cropping1D(
        (num_prefix_tokens(model), 0), dtype="float32", name=f"{name}_patches"
    )
    return keras.layers.GlobalAveragePooling1D("channels_last", **options)(crop(output))


def _as_map(name, tokens, grid):
    if tokens.ndim == 4:
        return tokens
    if grid is None or tokens.ndim != 3 or tokens.shape[1] < grid[0] * grid[1]:
        raise ValueError(
            "`as_maps` needs layers whose output is a token sequence or a map. "
            f"Received: {name!r}, whose output has the shape {tokens.shape}"
        )
    rows, columns = grid
    return tokens[:, -rows * columns :].reshape(len(tokens), rows, columns, -1)
