"""Predictions on checked images, and features of them."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.core.arguments import check_integer, check_names
from keras_vit.core.pixels import (
    check_pixels,
    check_range,
    check_shape,
    scales_inputs,
    warn_of_range,
    warned_of_range,
)
from keras_vit.models.kernels.folding import fold
from keras_vit.models.parts import check_backbone, representation, token_grid


def features(
    model: keras.Model,
    images: Any,
    layers: Sequence[str] | None = None,
    as_maps: bool = False,
    batch_size: int = 32,
) -> np.ndarray | dict[str, np.ndarray]:
    """Compute the representation of images, or the outputs of layers.

    Args:
        model: a model of this package, built, tuned or reloaded.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            batches of them.
        layers: names of layers whose outputs to return, such as `["block_5", "encoder_norm"]`;
            `None` for the representation that the head sees (after `pre_logits`, if there is one).
        as_maps: whether to return token sequences as `(batch, rows, columns, width)` without the
            class token, instead of `(batch, tokens, width)`. Feature maps of a ResNet are returned
            as they are.
        batch_size: images in one step.

    Returns:
        A NumPy array, the representation; or a dictionary of arrays, one for each layer.

    Raises:
        ValueError: if the model has no such layer, a layer's output is neither a token sequence
            nor a feature map and `as_maps` asks for one, or if `images` is empty, does not have the
            model's input shape, or is not scaled to [-1, 1].

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> images = np.zeros((2, 32, 32, 3))
    >>> keras_vit.features(model, images).shape
    (2, 192)
    >>> keras_vit.features(model, images, layers=["block_5"], as_maps=True)["block_5"].shape
    (2, 2, 2, 192)
    """
    check_backbone(model)
    check_names("layers", layers)
    if layers is None:
        outputs = {"representation": representation(model, ("head",))}
    else:
        outputs = {name: _layer(model, name).output for name in layers}
    # Float32, since NumPy has no bfloat16 of its own.
    as_float32 = keras.layers.Activation("linear", dtype="float32")
    extractor = keras.Model(model.input, {name: as_float32(x) for name, x in outputs.items()})
    arrays = predict_images(model, fold(extractor, casting=True), images, batch_size)
    if as_maps:
        grid = token_grid(model, images)
        arrays = {name: _as_map(name, array, grid) for name, array in arrays.items()}
    if layers is None:
        return arrays["representation"]
    # Some backends sort dictionaries.
    return {name: arrays[name] for name in outputs}


def predict_images(model, extractor, images, batch_size=32, verbose=0):
    """Check images, then call `extractor.predict`.

    An array is checked first; other sources are checked batch by batch.

    Args:
        model: the model that the images are for.
        extractor: a model that takes the same images.
        images: array, `tf.data.Dataset`, or another source of batches for `keras.Model.predict`.
        batch_size: images in one step.
        verbose: as in `keras.Model.predict`.

    Returns:
        What `extractor.predict` returns.

    Raises:
        ValueError: if `images` is empty, does not have the model's input shape, or is not scaled to
            [-1, 1]; or `batch_size` is not a positive integer.
    """
    if batch_size is not None:
        check_integer("batch_size", batch_size, 1)
    options = {"batch_size": batch_size, "verbose": verbose}
    is_array = hasattr(images, "dtype")
    if is_array or images is None or isinstance(images, (list, tuple, dict, str, int, float)):
        check_shape(model, images)
        check_pixels(images, model=model)
        with warned_of_range():
            return extractor.predict(images, **options)
    if hasattr(images, "element_spec") or isinstance(images, keras.utils.PyDataset):
        _check_first_batch(model, images)
    found = _WithRange(extractor).predict(images, **options)
    if not scales_inputs(model):
        bounds = float(np.min(found["low"])), float(np.max(found["high"]))
        check_range(bounds)
        warn_of_range(bounds)
    return found["outputs"]


def feature_extractor(model):
    """Return a model from images to the inputs of the head, in float32.

    Raises:
        ValueError: if the model does not map an RGB image to a vector.
    """
    check_backbone(model)
    # The head is not used for the features, nor for the key of their cache.
    output = representation(model, ("head",))
    shape = model.inputs[0].shape
    if len(model.inputs) != 1 or len(shape) != 4 or shape[-1] != 3 or len(output.shape) != 2:
        raise ValueError(
            "`model` must map RGB images to a vector for each. "
            f"Received: a model from {[tuple(image.shape) for image in model.inputs]} to "
            f"{tuple(output.shape)}"
        )
    # Float32, as NumPy has no bfloat16.
    as_float32 = keras.layers.Activation("linear", dtype="float32", name="features")
    return keras.Model(model.input, as_float32(output), name="extractor")


def _layer(model, name):
    names = [layer.name for layer in model.layers]
    if name not in names:
        raise ValueError(
            f"`layers` must name layers of the model: {', '.join(names)}. "
            f"Received: layers=[{name!r}]"
        )
    return model.get_layer(name)


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


class _WithRange(keras.Model):
    """A model, and the least and the greatest value of each of its images."""

    def __init__(self, extractor):
        # Under another policy the images would be rounded.
        super().__init__(name="with_range", dtype="float32")
        self.extractor = extractor

    def call(self, images):
        # Keras 3.12 does not take several axes for all operations on torch.
        values = ops.reshape(images, (ops.shape(images)[0], -1))
        # TensorFlow's maximum may pass over NaN.
        has_nan = ops.any(ops.isnan(values), axis=1)
        return {
            "outputs": self.extractor(images, training=False),
            "low": ops.min(values, axis=1),
            "high": ops.where(has_nan, np.nan, ops.max(values, axis=1)),
        }


def _check_first_batch(model, dataset):
    if isinstance(dataset, keras.utils.PyDataset):
        batches = [] if dataset.num_batches == 0 else [dataset[0]]
    else:
        batches = dataset.take(1)
    for batch in batches:
        # Labels may come with the images.
        images = batch[0] if isinstance(batch, tuple) else batch
        check_shape(model, images)
        # The range of all batches decides on a warning.
        with warned_of_range():
            check_pixels(images, model=model)
        return
    raise ValueError("`images` must have at least one batch. Received: an empty dataset")
