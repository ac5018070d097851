"""Representations and intermediate tokens of a model."""

import keras

from keras_vit.core.arguments import check_names
from keras_vit.models.parts import representation, token_grid
from keras_vit.models.prediction import predict_images


def features(model, images, layers=None, as_maps=False, batch_size=32):
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
    grid = token_grid(model)
    check_names("layers", layers)
    if layers is None:
        outputs = {"representation": representation(model, ("head",))}
    else:
        outputs = {name: _layer(model, name).output for name in layers}
    # Float32, since NumPy has no bfloat16 of its own.
    as_float32 = keras.layers.Activation("linear", dtype="float32")
    extractor = keras.Model(model.input, {name: as_float32(x) for name, x in outputs.items()})
    arrays = predict_images(model, extractor, images, batch_size)
    if as_maps:
        arrays = {name: _as_map(name, array, grid) for name, array in arrays.items()}
    if layers is None:
        return arrays["representation"]
    # Some backends sort dictionaries.
    return {name: arrays[name] for name in outputs}


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
