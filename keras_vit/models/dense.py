"""Models for dense prediction: backbones with maps at several strides, and segmenters."""

import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_vit.core.arguments import SEGMENTER_HEADS, as_pair, check_choice
from keras_vit.layers import ClassToken, RegisterTokens, TransformerBlock
from keras_vit.layers.layer import Layer
from keras_vit.layers.normalization import layer_norm
from keras_vit.models.image_model import ImageModel, copy_attributes, zero_head
from keras_vit.models.structure import (
    find_blocks,
    num_prefix_tokens,
    token_layer_names,
    token_stride,
)
from keras_vit.models.surgery import replace_head

KINDS = ("simple", "blocks", "dpt")
# Number of maps that `kind="blocks"` returns by default.
NUM_MAPS = 4
# Binary logarithms of the strides of the levels.
LEVELS = {"P2": 2, "P3": 3, "P4": 4, "P5": 5}
# Segmenter's decoder: number of blocks, width of a head, width of the MLP divided by the width of
# the tokens, and dropout rate.
DECODER_BLOCKS, HEAD_WIDTH, MLP_RATIO, DROPOUT = 2, 64, 4, 0.1
# PyTorch's epsilon of LayerNorm.
EPSILON = 1e-5
_CHANNELS_LAST = {"data_format": "channels_last"}


def backbone(
    model: keras.Model,
    levels: Sequence[str] | None = None,
    kind: str = "simple",
    channels: int = 256,
) -> keras.Model:
    """Make a model that returns feature maps of images, for detection and segmentation.

    The output is a dictionary of maps `(batch, rows, columns, channels)`. If the patch size is a
    power of 2, the map `"P2"` has a quarter of the image's height and width, `"P3"` an eighth, and
    so on. For patches of 14 pixels, `"P4"` has one position per patch, as for patches of 16 pixels.

    The Transformer's variables are copies, and its frozen layers stay frozen. The layers after the
    Transformer are new. If the model takes images of any size (`keras_vit.resize(model, None)`),
    the backbone takes images of any size.

    Args:
        model: a Vision Transformer or hybrid of this package, new, trained or loaded.
        levels: names of the maps, from `"P2"` to `"P5"`; by default all four. For
            `kind="blocks"`, names of layers whose outputs are tokens, such as `("block_5",
            "encoder_norm")`; by default four blocks at equal distances, including the last block.
        kind: `"simple"`, ViTDet's pyramid of the last block's output; `"dpt"`, DPT's reassembly of
            blocks at equal distances, one block for each level; or `"blocks"`, the patch tokens of
            the named layers, arranged as maps without a change of their values or stride.
        channels: channels of the maps of `"simple"` and `"dpt"`.

    Returns:
        A Functional model, not compiled.

    Raises:
        ValueError: if `levels` or `kind` are unknown, a level has a larger stride than the image,
            or the model has no Transformer blocks.

    Reference:
        ViTDet (arXiv 2203.16527), section 3, and `SimpleFeaturePyramid` of detectron2; DPT (arXiv
        2103.13413), section 3.1, with the readout operation "project" if the model has a class
        token, and otherwise "ignore"; SETR (arXiv 2012.15840).

    Example:
    >>> model = keras_vit.ViT_Ti16(image_size=(64, 96))
    >>> maps = keras_vit.backbone(model, levels=("P3", "P4"), channels=32).output
    >>> maps["P3"].shape, maps["P4"].shape
    ((None, 8, 12, 32), (None, 4, 6, 32))
    """
    check_choice("kind", kind, KINDS)
    copy = replace_head(model, 0)
    blocks = [block.name for block in find_blocks(copy)]
    is_of_blocks = kind == "blocks"
    levels = tuple(levels or (_spread(blocks, NUM_MAPS) if is_of_blocks else LEVELS))
    # Sorted, because DPT makes finer maps from earlier blocks.
    levels = levels if is_of_blocks else tuple(sorted(levels))
    if not is_of_blocks and not set(levels) <= set(LEVELS):
        raise ValueError(f"`levels` must be among {', '.join(LEVELS)}. Received: levels={levels}")
    smallest = min((size for size in model.input_shape[1:3] if size), default=None)
    if not is_of_blocks and smallest and smallest < 2 ** max(LEVELS[level] for level in levels):
        raise ValueError(
            "`levels` must not have larger strides than the image. "
            f"Received: levels={levels} of images of {model.input_shape[1:3]}"
        )
    dtype = copy.get_layer(blocks[-1]).dtype_policy
    options = token_stride(copy), channels, dtype
    if kind == "simple":
        patches = _patches(copy, blocks[-1], dtype)
        maps = {level: _pyramid_level(patches, level, *options) for level in levels}
    elif kind == "dpt":
        maps = {
            level: _reassembled(_with_class_token(copy, name, level, dtype), level, *options)
            for level, name in zip(levels, _spread(blocks, len(levels)), strict=True)
        }
    else:
        maps = {name: _patches(copy, name, dtype) for name in levels}
    new = ImageModel(copy.input, maps, name=model.name)
    copy_attributes(model, new, keeps_head=False)
    new.options = None
    return new


def _spread(blocks, count):
    """Return the last block of each of `count` equal groups; too few blocks are repeated."""
    return [blocks[math.ceil((part + 1) * len(blocks) / count) - 1] for part in range(count)]


def _patches(model, name, dtype, map_name=None, with_class_token=False):
    """Return the patches of a layer's tokens as a map."""
    check_choice("levels", name, token_layer_names(model))
    count = num_prefix_tokens(model)
    options = {"dtype": dtype, "name": map_name or f"{name}_map"}
    layer = TokensToMap(token_stride(model), count, with_class_token, **options)
    return layer(model.get_layer(name).output, model.input)


def _with_class_token(model, name, level, dtype):
    """Return a block's patches as a map, combined with the class token if the model has one."""
    if not any(isinstance(layer, ClassToken) for layer in model.layers):
        return _patches(model, name, dtype, f"{level}_map")
    maps = _patches(model, name, dtype, f"{level}_map", with_class_token=True)
    width = maps.shape[-1] // 2
    return keras.layers.Dense(width, "gelu", dtype=dtype, name=f"{level}_readout")(maps)


def _doublings(stride, level):
    """Return how many times the map of patches is doubled in size; negative if it is halved."""
    return round(math.log2(math.prod(stride)) / 2) - LEVELS[level]


def _pyramid_level(maps, level, stride, channels, dtype):
    """Return the map of one level of ViTDet's simple feature pyramid.

    Reference:
        `SimpleFeaturePyramid` in `modeling/backbone/vit.py` of detectron2.
    """
    doublings = _doublings(stride, level)
    for number in range(doublings):
        if number:
            maps = layer_norm(dtype, f"{level}_up_{number - 1}_norm")(maps)
            maps = keras.layers.Activation(
                "gelu", dtype=dtype, name=f"{level}_up_{number - 1}_gelu"
            )(maps)
        options = {"dtype": dtype, "name": f"{level}_up_{number}", **_CHANNELS_LAST}
        maps = keras.layers.Conv2DTranspose(maps.shape[-1] // 2, 2, strides=2, **options)(maps)
    for number in range(-doublings):
        options = {"dtype": dtype, "name": f"{level}_down_{number}", **_CHANNELS_LAST}
        maps = keras.layers.MaxPooling2D(2, **options)(maps)
    for name, size in (("lateral", 1), ("output", 3)):
        options = {"use_bias": False, "dtype": dtype, "name": f"{level}_{name}", **_CHANNELS_LAST}
        maps = keras.layers.Conv2D(channels, size, padding="same", **options)(maps)
        maps = layer_norm(dtype, f"{level}_{name}_norm")(maps)
    return maps


def _reassembled(patches, level, stride, channels, dtype):
    """Return the map of one level of DPT.

    Reference:
        `DPTReassembleStage` of transformers.
    """
    options = {"dtype": dtype, **_CHANNELS_LAST}
    maps = keras.layers.Conv2D(channels, 1, name=f"{level}_projection", **options)(patches)
    doublings, name = _doublings(stride, level), f"{level}_resize"
    if doublings > 0:
        options |= {"strides": 2**doublings, "name": name}
        return keras.layers.Conv2DTranspose(channels, 2**doublings, **options)(maps)
    for number in range(-doublings):
        # With `padding="same"`, Keras would pad an even number of rows only at the end.
        maps = keras.layers.ZeroPadding2D(1, name=f"{name}_{number}_padding", **options)(maps)
        maps = keras.layers.Conv2D(channels, 3, strides=2, name=f"{name}_{number}", **options)(maps)
    return maps


def segmenter(backbone: keras.Model, num_classes: int, head: str = "linear") -> keras.Model:
    """Make a model that returns the logits of the classes for each pixel of an image.

    The output is `(batch, height, width, num_classes)`, float32, with the images' height and width.
    The backbone's maps are resized to the finest map and concatenated. Logits are computed from
    them, and resized bilinearly to the images. The segmenter shares the backbone's variables.

    Args:
        backbone: a model of `keras_vit.backbone`. The Segmenter paper uses one map, the normalized
            patches: `keras_vit.backbone(model, ("encoder_norm",), "blocks")`.
        num_classes: number of classes, including the background if it is a class.
        head: `"linear"`, a linear classifier of each position of the map; or `"mask"`, Segmenter's
            mask Transformer: two blocks transform patches and class embeddings, and the masks are
            the products of both.

    Returns:
        A Functional model, not compiled.

    Raises:
        ValueError: if `head` is unknown.

    Reference:
        Segmenter (arXiv 2105.05633).

    Example:
    >>> model = keras_vit.ViT_Ti16(image_size=(64, 96))
    >>> maps = keras_vit.backbone(model, ("encoder_norm",), "blocks")
    >>> keras_vit.segmenter(maps, num_classes=3).output.shape
    (None, 64, 96, 3)
    """
    check_choice("head", head, SEGMENTER_HEADS)
    names = sorted(backbone.output)
    first = backbone.output[names[0]]
    dtype = backbone.layers[-1].dtype_policy
    maps = [first]
    for name in names[1:]:
        resized = ResizeLike(dtype=dtype, name=f"{name}_resized")
        maps.append(resized(backbone.output[name], first))
    if len(maps) > 1:
        maps = [keras.layers.Concatenate(dtype=dtype, name="all_maps")(maps)]
    if head == "linear":
        outputs = zero_head(num_classes)(maps[0])
    else:
        outputs = _masks(maps[0], num_classes, dtype)
    logits = ResizeLike(dtype="float32", name="logits")(outputs, backbone.input)
    model = ImageModel(backbone.input, logits, name=backbone.name)
    copy_attributes(backbone, model, keeps_head=False)
    # Masks are of whole images, even if the checkpoint's `image_spec` has a center crop.
    model.image_spec = model.image_spec.of_whole_image()
    return model


def _masks(maps, num_classes, dtype):
    width = maps.shape[-1]
    tokens = keras.layers.Reshape((-1, width), dtype=dtype, name="tokens")(maps)
    tokens = keras.layers.Dense(width, dtype=dtype, name="projection")(tokens)
    # One learned token per class.
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


@keras.saving.register_keras_serializable("keras_vit")
class TokensToMap(Layer):
    """Arranges the patches of a token sequence as a map.

    Output: `(batch, rows, columns, width)`.

    Args:
        stride: int or `(height, width)` of the part of an image that a patch represents, in pixels.
        num_prefix_tokens: number of tokens before the patches. These tokens are left out.
        with_class_token: whether to append the first token to each patch, which doubles the width.

    Call arguments:
        tokens: the token sequence, `(batch, tokens, width)`.
        images: the images or maps from which the tokens were computed, `(batch, height, width,
            channels)`.

    Reference:
        "Read" and "concatenate" of DPT (arXiv 2103.13413), section 3.1.

    Example:
    >>> from keras_vit.models.dense import TokensToMap
    >>> tokens, images = np.zeros((2, 1 + 2 * 3, 8)), np.zeros((2, 32, 48, 3))
    >>> tuple(TokensToMap(stride=16, num_prefix_tokens=1)(tokens, images).shape)
    (2, 2, 3, 8)
    """

    def __init__(self, stride, num_prefix_tokens=0, with_class_token=False, **kwargs):
        super().__init__(**kwargs)
        self.stride = as_pair(stride, "stride")
        self.num_prefix_tokens = num_prefix_tokens
        self.with_class_token = with_class_token

    def call(self, tokens, images):
        batch, height, width = ops.shape(images)[:3]
        grid = height // self.stride[0], width // self.stride[1]
        patches = tokens[:, self.num_prefix_tokens :]
        if self.with_class_token:
            class_token = ops.broadcast_to(tokens[:, :1], ops.shape(patches))
            patches = ops.concatenate([patches, class_token], axis=-1)
        return ops.reshape(patches, (batch, *grid, patches.shape[-1]))

    def compute_output_shape(self, tokens_shape, images_shape):
        sides = zip(images_shape[1:3], self.stride, strict=True)
        grid = [size and size // pixels for size, pixels in sides]
        return (tokens_shape[0], *grid, tokens_shape[-1] * (2 if self.with_class_token else 1))


@keras.saving.register_keras_serializable("keras_vit")
class ResizeLike(Layer):
    """Interpolates maps bilinearly, with half-pixel centers, to the size of other maps.

    Call arguments:
        maps: `(batch, rows, columns, width)`.
        like: maps or images with the rows and columns of the result.

    Example:
    >>> from keras_vit.models.dense import ResizeLike
    >>> tuple(ResizeLike()(np.zeros((2, 4, 6, 8)), np.zeros((2, 32, 48, 3))).shape)
    (2, 32, 48, 8)
    """

    def call(self, maps, like):
        known = tuple(like.shape[1:3])
        if None not in known and known == tuple(maps.shape[1:3]):
            return maps
        size = tuple(ops.shape(like)[1:3])
        if all(isinstance(side, int) for side in size):
            options = {"antialias": False, "data_format": "channels_last"}
            return ops.image.resize(maps, size, "bilinear", **options)
        # `ops.image.resize` needs a known size. A TensorFlow graph for any size does not have it.
        rows, columns = (
            _bilinear_weights(side, own, maps.dtype)
            for side, own in zip(size, ops.shape(maps)[1:3], strict=True)
        )
        return ops.einsum("yh,xw,bhwc->byxc", rows, columns, maps)

    def compute_output_shape(self, maps_shape, like_shape):
        return (maps_shape[0], *like_shape[1:3], maps_shape[-1])


def _bilinear_weights(size, count, dtype):
    """Return the weights `(size, count)` of an interpolation with half-pixel centers."""
    centers = (ops.arange(size, dtype="float32") + 0.5) * ops.cast(count, "float32")
    centers = centers / ops.cast(size, "float32") - 0.5
    centers = ops.clip(centers, 0.0, ops.cast(count - 1, "float32"))
    distances = ops.abs(centers[:, None] - ops.arange(count, dtype="float32"))
    return ops.cast(ops.relu(1.0 - distances), dtype)


@keras.saving.register_keras_serializable("keras_vit")
class MaskProduct(Layer):
    """Computes the masks of classes as products of normalized patch and class embeddings.

    Input: `(batch, units + tokens, width)`, the class embeddings first. Output:
    `(batch, tokens, units)`.

    Args:
        units: number of classes.

    Reference:
        Segmenter (arXiv 2105.05633), section 3.2; `MaskTransformer` of its `segm/model/decoder.py`.

    Example:
    >>> from keras_vit.models.dense import MaskProduct
    >>> tuple(MaskProduct(3)(np.ones((2, 3 + 24, 8))).shape)
    (2, 24, 3)
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        width = input_shape[-1]
        options = {
            "use_bias": False,
            "kernel_initializer": keras.initializers.RandomNormal(stddev=width**-0.5),
            **self.sublayer_options(),
        }
        self.classes = keras.layers.Dense(width, name="classes", **options)
        self.patches = keras.layers.Dense(width, name="patches", **options)
        self.norm = layer_norm(self.dtype_policy, "norm", EPSILON, self.trainable)
        self.classes.build((None, None, width))
        self.patches.build((None, None, width))
        self.norm.build((None, None, self.units))

    def call(self, tokens):
        classes = self.classes(tokens[:, : self.units])
        patches = self.patches(tokens[:, self.units :])
        # For images of any size, slicing loses the number of classes. The reshape sets it.
        classes = ops.reshape(classes, (-1, self.units, tokens.shape[-1]))
        classes, patches = (ops.normalize(x, axis=-1) for x in (classes, patches))
        return self.norm(ops.matmul(patches, ops.swapaxes(classes, 1, 2)))

    def compute_output_shape(self, input_shape):
        batch_size, num_tokens, _ = input_shape
        return (batch_size, num_tokens and num_tokens - self.units, self.units)
