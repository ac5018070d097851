"""Vision Transformers, plain and hybrid (on a ResNet), as Functional Keras models."""

import functools
import inspect
from typing import Any

import keras

from keras_vit.core.image_spec import ImageSpec
from keras_vit.layers import (
    AddPositionEmbedding,
    AddPositionEmbedding2D,
    AddSincosPositionEmbedding,
    AxialTransformerBlock,
    ClassToken,
    ClassTokenAndMeanPooling,
    ClassTokenPooling,
    MultiHeadAttentionPooling,
    PatchEmbedding,
    RegisterTokens,
    TransformerBlock,
)
from keras_vit.layers.normalization import layer_norm
from keras_vit.models.image_model import ImageModel, follow_dtype, unit_norm, zero_head
from keras_vit.models.options import (
    ATTENTION_EMBEDDINGS,
    DEFAULT_IMAGE_SIZE,
    VitOptions,
    as_options,
    is_resnet,
)
from keras_vit.models.resnet import hybrid_maps, resnet

# Layers that add position embeddings, by the value of the option `position_embedding`.
ADDED_POSITIONS = {
    "learned": AddPositionEmbedding,
    "learned2d": AddPositionEmbedding2D,
    "sincos2d": AddSincosPositionEmbedding,
}


def vision_transformer(*options: Any, **fields: Any) -> ImageModel:
    """Build a Vision Transformer of any depth, width and patch size.

    The model takes images `(batch, height, width, channels)`, float, in [-1, 1] (see
    `keras_vit.preprocess`), and returns logits `(batch, num_classes)` in float32. Its layers are
    named `patch_embedding`, `class_token`, `position_embedding`, `block_0` ..., `encoder_norm`,
    `pooling`, `projection`, `pre_logits`, `unit_norm` and `head`. The layers of a hybrid's ResNet
    are named `root_conv`, `root_norm`, `root_pool`, `stage_1_unit_1` ...

    Args:
        *options: a `keras_vit.models.VitOptions`, or values for the first of its fields.
        **fields: values for other fields. They replace the values in a given `VitOptions`.

    Returns:
        A Functional `keras.Model` that carries its options, see `keras_vit.models.ImageModel`.

    Raises:
        ValueError: if the patches do not tile the image, the heads do not divide the width, a rate
            is not in [0, 1), an option is unknown, or two options exclude each other.

    Reference:
        "An Image is Worth 16x16 Words", arXiv 2010.11929. Hybrids are in section 3.1, position
        embeddings and where they are added in appendix D.4, and axial blocks in appendix D.6.

    Example:
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=32, depth=2, num_heads=2, mlp_dim=64,
    ...     num_classes=10, image_size=(16, 24))
    >>> model.output.shape
    (None, 10)
    """
    o = as_options(VitOptions, options, fields)
    images = maps = keras.Input((*(o.image_size or (None, None)), o.image_channels), name="images")
    if o.resnet_stages is not None:
        maps = hybrid_maps(images, o.resnet_stages, o.resnet_width, o.dtype)
    patches = PatchEmbedding(
        o.embedding_dim,
        o.patch_size,
        use_bias=o.has_patch_bias,
        dtype=o.dtype,
        name="patch_embedding",
    )(maps)
    add_positions = _positions(o, images)
    tokens = _embed(patches, o, add_positions)  # equation 1
    tokens = keras.layers.Dropout(o.dropout, dtype=o.dtype, name="dropout")(tokens)
    if o.pre_norm:
        tokens = layer_norm(o.dtype, "pre_norm", o.epsilon)(tokens)
    for index in range(o.depth):
        if index and o.position_placement != "stem":
            tokens = add_positions(tokens, index)
        tokens = _block(o, index)(tokens)  # equations 2 and 3
    if o.final_norm and not o.fc_norm:
        tokens = layer_norm(o.dtype, "encoder_norm", o.epsilon)(tokens)
    outputs = _pool(tokens, o)  # equation 4
    if o.fc_norm:
        outputs = layer_norm(o.dtype, "fc_norm", o.epsilon)(outputs)
    model = ImageModel(images, _head(outputs, o), name=o.name)
    model.options = o
    model.image_spec = ImageSpec(channels=o.image_channels)
    follow_dtype(model)
    return model


vision_transformer.__signature__ = inspect.signature(VitOptions).replace(
    return_annotation=ImageModel
)


def _positions(o, images):
    """Return a function that adds position embeddings to the tokens before a block."""
    prefix = {} if _adds_to_patches(o) else {"num_prefix_tokens": o.num_prefix_tokens}

    @functools.cache
    def layer(name):
        options = {"dtype": o.dtype, "name": name}
        # A table with one embedding per token needs no grid if the image size is fixed.
        if o.grid is None or o.position_embedding != "learned":
            options |= {"grid_size": o.grid or default_grid(o.stride), **prefix}
        if o.grid is None:
            options["patch_size"] = o.stride
        return ADDED_POSITIONS[o.position_embedding](**options)

    def add(tokens, index=0):
        if o.position_embedding not in ADDED_POSITIONS:
            return tokens
        is_separate = index and o.position_placement == "every_layer"
        add_to = layer(f"position_embedding_{index}" if is_separate else "position_embedding")
        return add_to(tokens) if o.grid else add_to(tokens, images)

    return add


def _adds_to_patches(o):
    """Whether positions are added to the patches before other tokens are prepended."""
    return o.position_placement == "stem" and o.position_embedding != "learned"


def default_grid(stride):
    """Return the grid for which a model of any image size stores position embeddings."""
    return tuple(max(DEFAULT_IMAGE_SIZE // pixels, 1) for pixels in stride)


def _embed(patches, o, add_positions):
    """Return class token, distillation token, registers and patches, with their positions."""
    tokens = add_positions(patches) if _adds_to_patches(o) else patches
    if o.num_registers:
        tokens = RegisterTokens(o.num_registers, dtype=o.dtype, name="register_tokens")(tokens)
    if o.distillation_token:
        tokens = ClassToken(dtype=o.dtype, name="distillation_token")(tokens)
    if o.has_class_token:
        tokens = ClassToken(dtype=o.dtype, name="class_token")(tokens)
    return tokens if _adds_to_patches(o) else add_positions(tokens)


def _block(o, index):
    """Return a Transformer block, whose arguments are the options of the same name."""
    kind = AxialTransformerBlock if o.axial else TransformerBlock
    names = inspect.signature(TransformerBlock).parameters
    options = {name: value for name, value in vars(o).items() if name in names}
    options |= {
        "stochastic_depth": o.stochastic_depth * index / max(o.depth - 1, 1),
        "dtype": o.dtype,
        "name": f"block_{index}",
    }
    grids = [f"{kind}_grid_size" for kind in ATTENTION_EMBEDDINGS if kind == o.position_embedding]
    grids += ["grid_size"] * o.axial
    if grids:
        check_grid(o.grid)
    return kind(**options, **dict.fromkeys(grids, o.grid))


def check_grid(grid):
    """Raise `ValueError` if the grid is `None`; called for layers that need a grid."""
    if grid is None:
        raise ValueError(
            "`image_size` must be given for rotary or relative positions and axial attention. "
            "Received: image_size=None"
        )


def _pool(tokens, o):
    """Pool the tokens; `gap` and `map` pool the patch tokens only."""
    options = {"dtype": o.dtype, "name": "pooling"}
    if o.pooling in ("gap", "map") and o.num_prefix_tokens:
        cropping = (o.num_prefix_tokens, 0)
        tokens = keras.layers.Cropping1D(cropping, dtype=o.dtype, name="patch_tokens")(tokens)
    if o.pooling == "token":
        return ClassTokenPooling(num_tokens=2 if o.distillation_token else 1, **options)(tokens)
    if o.pooling == "token_gap":
        return ClassTokenAndMeanPooling(o.num_prefix_tokens, **options)(tokens)
    if o.pooling == "gap":
        return keras.layers.GlobalAveragePooling1D("channels_last", **options)(tokens)
    if o.pooling == "map":
        attention = o.num_heads, o.mlp_dim, o.activation, o.epsilon, o.attention_path
        return MultiHeadAttentionPooling(*attention, **options)(tokens)
    return tokens


def _head(outputs, o):
    """Apply the projection, hidden tanh layer, unit norm and classifier, if there are any."""
    dense = functools.partial(keras.layers.Dense, kernel_initializer="lecun_normal", dtype=o.dtype)
    if o.projection_dim is not None:
        outputs = dense(o.projection_dim, use_bias=False, name="projection")(outputs)
    if o.representation_size is not None:
        outputs = dense(o.representation_size, activation="tanh", name="pre_logits")(outputs)
    if o.unit_norm:
        outputs = unit_norm()(outputs)
    if not o.num_classes:
        return outputs
    return zero_head(o.num_classes, o.classifier_activation, o.distillation_token)(outputs)


def build_model(options):
    """Build the model of `VitOptions` or `ResNetOptions`."""
    return (resnet if is_resnet(options) else vision_transformer)(options)


def variable_shapes(options):
    """Return the shapes of the variables of a model with these options, by path.

    Only one block, and two units per stage of a ResNet, are built. The shapes in the other blocks
    and units are the same.
    """
    copies, name = {}, "stages" if is_resnet(options) else "resnet_stages"
    units = getattr(options, name) or ()
    smaller = {"num_classes": min(options.num_classes, 1)}
    if units:
        smaller[name] = tuple(min(n, 2) for n in units)
    for s, n in enumerate(units, start=1):
        copies[f"stage_{s}_unit_2/"] = [f"stage_{s}_unit_{u}/" for u in range(3, n + 1)]
    if not is_resnet(options):
        smaller["depth"], indices = 1, range(1, options.depth)
        copies["block_0/"] = [f"block_{index}/" for index in indices]
        if options.position_placement == "every_layer":
            copies["position_embedding/"] = [f"position_embedding_{index}/" for index in indices]
    model = build_model(options.replace(**smaller))
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    for path, shape in list(shapes.items()):
        layer = path.partition("/")[0] + "/"
        if layer == "head/":
            shapes[path] = (*shape[:-1], options.num_classes)
        shapes |= {path.replace(layer, copy, 1): shape for copy in copies.get(layer, ())}
    return shapes
