"""Vision Transformers as Functional Keras models."""

import inspect

import keras

from keras_vit.layers import (
    AddPositionEmbedding,
    ClassToken,
    ClassTokenPooling,
    MultiHeadAttentionPooling,
    PatchEmbedding,
    TransformerBlock,
)
from keras_vit.layers.arguments import as_pair, check_heads, check_integer, check_rate
from keras_vit.layers.mlp import as_activation
from keras_vit.layers.transformer import layer_norm
from keras_vit.models.files import WEIGHT_FILES, check_file, load_weights
from keras_vit.models.variants import find_variant

POOLINGS = ("token", "gap", "map", None)


def vision_transformer(
    patch_size,
    embedding_dim,
    depth,
    num_heads,
    mlp_dim,
    num_classes=1000,
    image_size=224,
    image_channels=3,
    weights=None,
    pooling="token",
    representation_size=None,
    classifier_activation=None,
    activation="gelu_tanh",
    dropout=0.0,
    attention_dropout=0.0,
    stochastic_depth=0.0,
    name="vision_transformer",
    dtype=None,
):
    """Builds a Vision Transformer of any size.

    The model takes images `(batch, height, width, channels)`, float, in [-1, 1] (see
    `keras_vit.preprocess`), and returns logits `(batch, num_classes)` in float32. Its layers are
    named `patch_embedding`, `class_token`, `position_embedding`, `block_0` ..., `encoder_norm`,
    `pooling`, `pre_logits` and `head`.

    Args:
        patch_size: int or `(height, width)` of a patch, in pixels.
        embedding_dim: width of a token.
        depth: number of Transformer blocks.
        num_heads: attention heads of a block; divides `embedding_dim`.
        mlp_dim: hidden width of a block's MLP.
        num_classes: width of the head; 0 for no head, the model then returns the representation.
        image_size: int or `(height, width)`, multiples of the patch size.
        image_channels: channels of an image.
        weights: `None` for a random start, or the path of a `.keras` or `.weights.h5` file that
            fits this very model.
        pooling: `"token"` (class token), `"gap"` (mean of the tokens), `"map"` (multi-head
            attention pooling) or `None` (all tokens, the class token first). The class token exists
            with `"token"` and `None`.
        representation_size: width of the pre-training head's hidden tanh layer `pre_logits`, or
            `None` for no such layer.
        classifier_activation: activation of the head; `None` returns logits.
        activation: of the MLPs: `"gelu_tanh"` (the original's), or `"gelu"` (erf) for weights born
            in torch.
        dropout: rate after the position embedding, the attention and each layer of an MLP.
        attention_dropout: rate at which attention weights are dropped.
        stochastic_depth: rate at which the last block drops a residual branch; it grows linearly
            from 0 in the first block.
        name: name of the model.
        dtype: dtype or policy of the layers, such as `"mixed_bfloat16"`; `None` for the global
            policy. LayerNorm statistics, softmax and logits are float32 under each. To train with
            `"mixed_float16"`, compile with a `keras.optimizers.LossScaleOptimizer`; under the
            global policy and with our recipes that is done for you.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if a size is not positive or `num_classes` negative, the patches do not tile the
            image, the heads do not divide the width, a rate is not at least 0 and less than 1,
            `pooling` or an activation is unknown, or `weights` is not a file of this model.

    Reference:
        "An Image is Worth 16x16 Words", arXiv 2010.11929.

    Example:
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=32, depth=2, num_heads=2, mlp_dim=64,
    ...     num_classes=10, image_size=(16, 24))
    >>> model.output.shape
    (None, 10)
    """
    # Everything is checked before the first variable is made: models are large.
    embedding_dim = check_integer("embedding_dim", embedding_dim, minimum=1)
    depth = check_integer("depth", depth, minimum=1)
    mlp_dim = check_integer("mlp_dim", mlp_dim, minimum=1)
    image_channels = check_integer("image_channels", image_channels, minimum=1)
    num_classes = check_integer("num_classes", num_classes, minimum=0)
    if representation_size is not None:
        representation_size = check_integer("representation_size", representation_size, minimum=1)
    check_heads(embedding_dim, num_heads)
    check_rate("dropout", dropout)
    check_rate("attention_dropout", attention_dropout)
    check_rate("stochastic_depth", stochastic_depth)
    as_activation(activation)
    as_activation(classifier_activation, "classifier_activation")
    if pooling not in POOLINGS:
        raise ValueError(f"`pooling` must be one of {POOLINGS}. Received: pooling={pooling!r}")
    if weights is not None:
        check_file("weights", weights, WEIGHT_FILES)

    images = keras.Input((*as_pair(image_size, "image_size"), image_channels), name="images")
    tokens = PatchEmbedding(embedding_dim, patch_size, dtype=dtype, name="patch_embedding")(images)
    if pooling in ("token", None):
        tokens = ClassToken(dtype=dtype, name="class_token")(tokens)
    tokens = AddPositionEmbedding(dtype=dtype, name="position_embedding")(tokens)
    tokens = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(tokens)
    for index in range(depth):
        tokens = TransformerBlock(
            num_heads,
            mlp_dim,
            activation=activation,
            dropout=dropout,
            attention_dropout=attention_dropout,
            stochastic_depth=stochastic_depth * index / max(depth - 1, 1),
            dtype=dtype,
            name=f"block_{index}",
        )(tokens)
    tokens = layer_norm(dtype, "encoder_norm")(tokens)
    outputs = _pool(tokens, pooling, num_heads, mlp_dim, activation, dtype)
    outputs = _head(outputs, num_classes, representation_size, classifier_activation, dtype)
    model = keras.Model(images, outputs, name=name)
    if weights is not None:
        load_weights(model, weights)
    return model


def _pool(tokens, pooling, num_heads, mlp_dim, activation, dtype):
    if pooling == "token":
        return ClassTokenPooling(dtype=dtype, name="pooling")(tokens)
    if pooling == "gap":
        return keras.layers.GlobalAveragePooling1D(
            data_format="channels_last", dtype=dtype, name="pooling"
        )(tokens)
    if pooling == "map":
        return MultiHeadAttentionPooling(
            num_heads, mlp_dim, activation, dtype=dtype, name="pooling"
        )(tokens)
    return tokens


def _head(outputs, num_classes, representation_size, classifier_activation, dtype):
    if representation_size is not None:
        outputs = keras.layers.Dense(
            representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            dtype=dtype,
            name="pre_logits",
        )(outputs)
    return zero_head(num_classes, classifier_activation)(outputs) if num_classes else outputs


def zero_head(num_classes, activation=None):
    """The linear classifier, zero at the start (section 3.2 of the paper) and always float32."""
    return keras.layers.Dense(
        num_classes,
        activation=activation,
        kernel_initializer="zeros",
        dtype="float32",
        name="head",
    )


def build(variant, **options):
    """Builds a model by the name of its variant.

    Args:
        variant: a name of `keras_vit.list_variants()`, such as `"ViT_B16"`.
        **options: as in `keras_vit.vision_transformer`, from `num_classes` on.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if no variant has that name, or an option is wrong.

    Example:

    >>> keras_vit.models.build("ViT_Ti16", num_classes=10, image_size=32).name
    'ViT_Ti16'
    """
    row = find_variant(variant)
    return vision_transformer(**row.architecture, **{"name": row.name, **options})


def _builder(name):
    row = find_variant(name)

    def builder(num_classes=1000, image_size=224, weights=None, **options):
        return build(
            name, num_classes=num_classes, image_size=image_size, weights=weights, **options
        )

    # The signature shows every option without a second list of them.
    signature = inspect.signature(vision_transformer)
    parameters = [
        parameter.replace(default=name) if parameter.name == "name" else parameter
        for parameter in signature.parameters.values()
        if parameter.name not in row.architecture
    ]
    builder.__signature__ = signature.replace(parameters=parameters)
    builder.__name__ = builder.__qualname__ = name
    builder.__doc__ = (
        f"Builds {name.replace('_', '-')}: patches of {row.patch_size} pixels, "
        f"{row.depth} blocks of width {row.embedding_dim} with {row.num_heads} heads.\n\n"
        "The arguments are those of `keras_vit.vision_transformer`, from `num_classes` on.\n\n"
        "Returns:\n    A Functional `keras.Model`.\n\n"
        "Raises:\n    ValueError: if an argument is wrong.\n"
    )
    return builder


ViT_Ti16 = _builder("ViT_Ti16")
ViT_S32 = _builder("ViT_S32")
ViT_S16 = _builder("ViT_S16")
ViT_B32 = _builder("ViT_B32")
ViT_B16 = _builder("ViT_B16")
ViT_B8 = _builder("ViT_B8")
ViT_L32 = _builder("ViT_L32")
ViT_L16 = _builder("ViT_L16")
ViT_So400m14 = _builder("ViT_So400m14")
ViT_H14 = _builder("ViT_H14")
ViT_g14 = _builder("ViT_g14")
ViT_G14 = _builder("ViT_G14")
