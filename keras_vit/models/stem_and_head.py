"""The stem and the head of a model: what is before and after its blocks."""

import dataclasses
import logging
from typing import Any

import keras
from keras import ops

from keras_vit.layers import (
    AddPositionEmbedding,
    AddPositionEmbedding2D,
    AddSincosPositionEmbedding,
    ClassToken,
    ClassTokenAndMeanPooling,
    ClassTokenPooling,
    DistilledHead,
    MultiHeadAttentionPooling,
    PatchEmbedding,
    RegisterTokens,
)

# The size of models of any size, and of files that record none (ResNets, fixed positions).
DEFAULT_IMAGE_SIZE = 224
# Layers that add position embeddings, by the option.
ADDED_POSITIONS = {
    "learned": AddPositionEmbedding,
    "learned2d": AddPositionEmbedding2D,
    "sincos2d": AddSincosPositionEmbedding,
}


@dataclasses.dataclass
class Positions:
    """The layers that add position embeddings to the tokens of a model.

    Args:
        kind, placement: the options `position_embedding` and `position_placement`.
        images: input of the model.
        grid: `(rows, columns)` of the patches, `None` for images of any size.
        stride: `(height, width)` of the part of an image that one token represents.
        num_prefix_tokens: number of tokens before the patches.
        dtype: dtype or policy of the layers.
    """

    kind: str
    placement: str
    images: Any
    grid: tuple[int, int] | None
    stride: tuple[int, int]
    num_prefix_tokens: int
    dtype: Any
    _shared: Any = None

    @property
    def are_of_patches(self):
        """Whether they are added to the patches before other tokens are prepended to these."""
        return self.placement == "stem" and self.kind != "learned"

    def at_stem(self, tokens):
        """Add those of the stem, at the beginning of the first block."""
        if self.kind not in ADDED_POSITIONS:
            return tokens
        self._shared = self._layer("position_embedding")
        return self._add(self._shared, tokens)

    def at_block(self, tokens, index):
        """Add those of the beginning of a block, unless they were added at the stem."""
        if self.placement == "stem" or index == 0:
            return tokens
        if self.placement == "every_layer_shared":
            return self._add(self._shared, tokens)
        return self._add(self._layer(f"position_embedding_{index}"), tokens)

    def _layer(self, name):
        options = {"dtype": self.dtype, "name": name}
        if self.grid is None:
            options["patch_size"] = self.stride
        # One embedding per token needs no grid if there is one image size.
        if self.grid is None or self.kind != "learned":
            options["grid_size"] = self.grid or default_grid(self.stride)
            if not self.are_of_patches:
                options["num_prefix_tokens"] = self.num_prefix_tokens
        return ADDED_POSITIONS[self.kind](**options)

    def _add(self, layer, tokens):
        return layer(tokens) if self.grid else layer(tokens, self.images)


def embed(
    maps,
    patch_size,
    width,
    positions,
    *,
    class_token,
    distillation_token,
    num_registers,
    patch_bias,
    dtype,
):
    """Return the tokens of equation 1 of the paper.

    The order is class token, distillation token, registers, patches. `positions` are `Positions`.
    """
    tokens = PatchEmbedding(
        width, patch_size, use_bias=patch_bias, dtype=dtype, name="patch_embedding"
    )(maps)
    if positions.are_of_patches:
        tokens = positions.at_stem(tokens)
    if num_registers:
        tokens = RegisterTokens(num_registers, dtype=dtype, name="register_tokens")(tokens)
    if distillation_token:
        tokens = ClassToken(dtype=dtype, name="distillation_token")(tokens)
    if class_token:
        tokens = ClassToken(dtype=dtype, name="class_token")(tokens)
    return tokens if positions.are_of_patches else positions.at_stem(tokens)


def default_grid(stride):
    """Return the grid for which a model of any image size stores position embeddings."""
    return tuple(max(DEFAULT_IMAGE_SIZE // pixels, 1) for pixels in stride)


def pooling_layer(pooling, num_prefix_tokens, distillation_token, attention, dtype):
    """Return the layer that pools, or `None` for no pooling.

    `attention` are the arguments of `MultiHeadAttentionPooling`.
    """
    options = {"dtype": dtype, "name": "pooling"}
    if pooling == "map":
        return MultiHeadAttentionPooling(*attention, **options)
    if pooling == "token":
        return ClassTokenPooling(num_tokens=2 if distillation_token else 1, **options)
    if pooling == "token_gap":
        return ClassTokenAndMeanPooling(num_prefix_tokens, **options)
    if pooling == "gap":
        return keras.layers.GlobalAveragePooling1D(data_format="channels_last", **options)
    return None


def pool(tokens, pooling, layer, num_prefix_tokens, dtype):
    """Apply a pooling layer to the tokens; `gap` and `map` pool the patch tokens only."""
    if pooling in ("gap", "map") and num_prefix_tokens:
        cropping = (num_prefix_tokens, 0)
        tokens = keras.layers.Cropping1D(cropping, dtype=dtype, name="patch_tokens")(tokens)
    return tokens if layer is None else layer(tokens)


def zero_head(num_classes, activation=None, distilled=False):
    """Return the float32 linear classifier, zero at the start (section 3.2 of the paper).

    `distilled`: whether the classifier is that of a model with a distillation token.
    """
    if distilled:
        return DistilledHead(num_classes, activation, dtype="float32", name="head")
    return keras.layers.Dense(
        num_classes,
        activation=activation,
        kernel_initializer="zeros",
        dtype="float32",
        name="head",
    )


def classification_head(
    outputs,
    num_classes,
    representation_size=None,
    projection_dim=None,
    classifier_activation=None,
    distilled=False,
    dtype=None,
):
    """Apply the projection, the hidden tanh layer and the classifier, if there are any."""
    if projection_dim is not None:
        outputs = keras.layers.Dense(
            projection_dim,
            use_bias=False,
            kernel_initializer="lecun_normal",
            dtype=dtype,
            name="projection",
        )(outputs)
    if representation_size is not None:
        outputs = keras.layers.Dense(
            representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            dtype=dtype,
            name="pre_logits",
        )(outputs)
    if not num_classes:
        return outputs
    return zero_head(num_classes, classifier_activation, distilled)(outputs)


def activation_name(activation):
    """Return the name of a head's activation, `None` for a head that returns logits."""
    # `keras.activations.serialize` would import TensorFlow on every backend.
    name = keras.activations.get(activation).__name__
    return None if name == "linear" else name


def has_zero_head(model):
    """Return whether the kernel of the head is zero: all images have the same logits."""
    weights = model.get_layer("head").weights
    kernels = [weight.value for weight in weights if weight.name == "kernel"]
    return not any(bool(ops.any(kernel)) for kernel in kernels)


def warn_of_zero_head(num_classes):
    """Log that a classifier is not trained."""
    logging.getLogger("keras_vit").warning(
        "all images have the same logits of the %d classes: the kernel of the model's head is "
        "zero, so it is not trained",
        num_classes,
    )
