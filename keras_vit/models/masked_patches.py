"""A Vision Transformer that predicts the content of corrupted patches."""

import keras

from keras_vit.core.arguments import COLOR_LEVELS, TARGETS, check_choice
from keras_vit.layers import CorruptPatches, PatchEmbedding
from keras_vit.models.image_model import options_of
from keras_vit.models.structure import BLOCKS, HEAD_LAYERS, token_grid, token_stride

NUM_COLORS = COLOR_LEVELS**3
# Rows and columns of a downsized patch.
CELLS = 4
# Layers of our models that come after the last LayerNorm of the tokens.
_AFTER_TOKENS = ("patch_tokens", "pooling", "fc_norm", *HEAD_LAYERS)


def masked_patch_predictor(model, target="mean_color"):
    """Make a model that predicts the content of corrupted patches from their tokens.

    The inputs are `{"images", "corruption"}`, as `keras_vit.data.mask_patches` returns them. The
    predictor has the layers of `model` up to the last LayerNorm, a `CorruptPatches` layer after the
    patch embedding, and a new head. The layers are shared: training the predictor trains `model`,
    except its pooling and its head.

    Args:
        model: a Vision Transformer or a hybrid of this package, new, trained or loaded.
        target: what is predicted per patch: `"mean_color"`, logits of 512 colors
            `(batch, patches, 512)`; `"downsized"`, logits of the colors of 4 x 4 cells
            `(batch, patches, 16, 512)`; or `"pixels"`, `(batch, patches, pixels * channels)`.

    Returns:
        A Functional `keras.Model`, not compiled, with outputs in float32.

    Raises:
        ValueError: if the model has no patches or carries no options, or the target is unknown.

    Reference:
        Sections 4.6 and B.1.2 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> predictor = masked_patch_predictor(model)
    >>> predictor.output.shape
    (None, 4, 512)
    >>> predictor.get_layer("block_0") is model.get_layer("block_0")
    True
    """
    check_choice("target", target, TARGETS)
    embedding, layers = _find_chain(model)
    patches = embedding.output
    corruption = keras.Input(patches.shape[1:2], dtype="int32", name="corruption")
    dtype = embedding.dtype_policy.name
    tokens = CorruptPatches(dtype=dtype, name="corrupt_patches")(patches, corruption)
    for layer in layers:
        tokens = layer(tokens)
    num_prefix_tokens = tokens.shape[1] - patches.shape[1]
    if num_prefix_tokens:
        cropping = (num_prefix_tokens, 0)
        tokens = keras.layers.Cropping1D(cropping, dtype=dtype, name="patch_tokens")(tokens)
    if "fc_norm" in [layer.name for layer in model.layers]:
        # A model with `fc_norm` has no norm between the last block and the pooling.
        tokens = model.get_layer("fc_norm")(tokens)
    outputs = _predict(tokens, target, token_stride(model), model.inputs[0].shape[-1])
    inputs = {"images": model.inputs[0], "corruption": corruption}
    return keras.Model(inputs, outputs, name="masked_patch_predictor")


def _find_chain(model):
    """Return the patch embedding, and the layers after it up to the last LayerNorm of tokens."""
    token_grid(model)
    layers = model.layers
    found = [i for i, layer in enumerate(layers) if isinstance(layer, PatchEmbedding)]
    if len(found) != 1 or len(model.inputs) != 1:
        raise ValueError(
            "`model` must have one input and one `PatchEmbedding`, whose patches can be masked. "
            f"Received: the model {model.name!r} with {len(model.inputs)} inputs and "
            f"{len(found)} `PatchEmbedding` layers"
        )
    chain = [layers[found[0]]]
    is_shared = options_of(model).position_placement == "every_layer_shared"
    for layer in layers[found[0] + 1 :]:
        if layer.name in _AFTER_TOKENS:
            break
        if is_shared and all(isinstance(x, BLOCKS) for x in (chain[-1], layer)):
            # `model.layers` lists the shared layer once, but each block is called after it.
            chain.append(model.get_layer("position_embedding"))
        chain.append(layer)
    return chain[0], chain[1:]


def _predict(tokens, target, patch_size, channels):
    """Return the outputs of a new float32 head, whose weights are zero."""
    num_patches = tokens.shape[1]
    units = {
        "mean_color": NUM_COLORS,
        "downsized": CELLS**2 * NUM_COLORS,
        "pixels": patch_size[0] * patch_size[1] * channels,
    }[target]
    head = keras.layers.Dense(units, kernel_initializer="zeros", dtype="float32", name="patch_head")
    outputs = head(tokens)
    if target == "downsized":
        shape = (num_patches, CELLS**2, NUM_COLORS)
        outputs = keras.layers.Reshape(shape, dtype="float32", name="cells")(outputs)
    return outputs
