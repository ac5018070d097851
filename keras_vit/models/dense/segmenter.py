"""Segmenters: a class for each pixel, from the maps of a backbone."""

import keras

from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.core.choices import SEGMENTER_HEADS
from keras_vit.core.resizing import WHOLE_IMAGE
from keras_vit.layers import RegisterTokens, TransformerBlock
from keras_vit.layers.normalization import layer_norm
from keras_vit.models.base import ImageModel, carry
from keras_vit.models.calls.origin import origin_of, set_origin
from keras_vit.models.dense.layers import MaskProduct, ResizeLike, TokensToMap

# The decoder of Segmenter's configuration: blocks, width of a head, MLP relative to the width.
DECODER_BLOCKS, HEAD_WIDTH, MLP_RATIO, DROPOUT = 2, 64, 4, 0.1
# That of PyTorch's LayerNorm.
EPSILON = 1e-5


def segmenter(backbone: keras.Model, num_classes: int, head: str = "linear") -> keras.Model:
    """Make a model from images to the logits of the classes of each pixel.

    The output is `(batch, height, width, num_classes)`, float32, of the images' size: logits are
    computed at the finest of the backbone's maps, to whose size the others are interpolated, and
    interpolated bilinearly. The segmenter shares the backbone's variables.

    Args:
        backbone: a model of `keras_vit.backbone`. That of the Segmenter paper has one map, the
            normalized patches: `keras_vit.backbone(model, ("encoder_norm",), "blocks")`.
        num_classes: number of classes, with the background if it is one.
        head: `"linear"`, a linear classifier of each place; or `"mask"`, Segmenter's mask
            Transformer: two blocks over patches and class embeddings, whose products are the masks.

    Returns:
        A Functional model, not compiled.

    Raises:
        ValueError: if `backbone` does not map images to a dictionary of maps, `num_classes` is not
            positive, or `head` is unknown.

    Reference:
        Segmenter (arXiv 2105.05633).

    Example:
    >>> model = keras_vit.ViT_Ti16(image_size=(64, 96))
    >>> maps = keras_vit.backbone(model, ("encoder_norm",), "blocks")
    >>> keras_vit.segmenter(maps, num_classes=3).output.shape
    (None, 64, 96, 3)
    """
    check_integer("num_classes", num_classes, minimum=1)
    check_choice("head", head, SEGMENTER_HEADS)
    _check_maps(backbone)
    names = sorted(backbone.output)
    first = backbone.output[names[0]]
    dtype = backbone.layers[-1].dtype_policy
    maps = [first]
    for name in names[1:]:
        resized = ResizeLike(dtype=dtype, name=f"{name}_resized")
        maps.append(resized(backbone.output[name], first))
    if len(maps) > 1:
        maps = [keras.layers.Concatenate(dtype=dtype, name="all_maps")(maps)]
    make = {"linear": _linear, "mask": _masks}[head]
    logits = ResizeLike(dtype="float32", name="logits")(
        make(maps[0], num_classes, dtype), backbone.input
    )
    model = ImageModel(backbone.input, logits, name=backbone.name)
    carry(backbone, model, keeps_head=False)
    # Masks are those of whole images, however the checkpoint crops.
    model.resizing = WHOLE_IMAGE
    set_origin(model, origin_of(backbone))
    return model


def _linear(maps, num_classes, _):
    # As in section 3.2 of the ViT paper: zero at the start, and float32.
    return keras.layers.Dense(
        num_classes, kernel_initializer="zeros", dtype="float32", name="head"
    )(maps)


def _masks(maps, num_classes, dtype):
    width = maps.shape[-1]
    tokens = keras.layers.Reshape((-1, width), dtype=dtype, name="tokens")(maps)
    tokens = keras.layers.Dense(width, dtype=dtype, name="projection")(tokens)
    # A token for each class is learned.
    tokens = RegisterTokens(num_classes, stddev=0.02, dtype=dtype, name="class_embeddings")(tokens)
    most = max(width // HEAD_WIDTH, 1)
    num_heads = next(count for count in range(most, 0, -1) if width % count == 0)
    for index in range(DECODER_BLOCKS):
        tokens = TransformerBlock(
            num_heads,
            MLP_RATIO * width,
            activation="gelu",
            dropout=DROPOUT,
            attention_dropout=DROPOUT,
            epsilon=EPSILON,
            dtype=dtype,
            name=f"decoder_block_{index}",
        )(tokens)
    tokens = layer_norm(dtype, "decoder_norm", EPSILON)(tokens)
    masks = MaskProduct(num_classes, dtype="float32", name="head")(tokens)
    return TokensToMap(1, dtype="float32", name="masks")(masks, maps)


def _check_maps(backbone):
    maps = getattr(backbone, "output", None)
    if not isinstance(maps, dict) or any(len(output.shape) != 4 for output in maps.values()):
        raise ValueError(
            "`backbone` must be a model of `keras_vit.backbone`, from images to a dictionary of "
            f"maps. Received: {type(backbone).__name__} {getattr(backbone, 'name', backbone)!r}"
        )
