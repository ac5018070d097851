"""Maps of a Vision Transformer at several strides, for detectors and segmenters."""

import math
from collections.abc import Sequence

import keras

from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.layers import ClassToken
from keras_vit.layers.tokens import LearnedTokens
from keras_vit.models.base import ImageModel, carry
from keras_vit.models.calls.origin import origin_of, set_origin
from keras_vit.models.dense.layers import TokensToMap
from keras_vit.models.dense.pyramids import LEVELS, reassembled, simple_pyramid
from keras_vit.models.parts import find_blocks, token_stride
from keras_vit.models.surgery import replace_head

KINDS = ("simple", "blocks", "dpt")
# Number of maps of `kind="blocks"`.
NUM_MAPS = 4


def backbone(
    model: keras.Model,
    levels: Sequence[str] | None = None,
    kind: str = "simple",
    channels: int = 256,
) -> keras.Model:
    """Make a model from images to a dictionary of maps, for detection and segmentation.

    Maps are `(batch, rows, columns, channels)`. The level `"P2"` has a quarter of the image's
    height and width, `"P3"` an eighth, and so on, if the patch size is a power of 2. For
    patches of 14 pixels, their own map counts as `"P4"`, as for 16.

    The Transformer's variables are copies, and so are its frozen parts; the layers after it are
    new. A model of any image size (`keras_vit.resize(model, None)`) gives a backbone of any size.

    Args:
        model: a Vision Transformer or hybrid of this package, built, tuned or reloaded.
        levels: names of the maps, from `"P2"` to `"P5"`; by default all four. For
            `kind="blocks"`, names of layers whose outputs are tokens, such as `("block_5",
            "encoder_norm")`; by default four blocks at equal distances, the last one among them.
        kind: `"simple"`, ViTDet's pyramid of the last block's output; `"dpt"`, DPT's reassembly of
            blocks at equal distances, one for each level; or `"blocks"`, the patches of layers as
            they are, all with the stride of the patches.
        channels: channels of the maps of `"simple"` and `"dpt"`.

    Returns:
        A Functional model, not compiled.

    Raises:
        ValueError: if `levels` or `kind` are unknown, a level has a larger stride than the image,
            `channels` is not positive, or the model has no Transformer blocks.

    Reference:
        ViTDet (arXiv 2203.16527), section 3, and `SimpleFeaturePyramid` of detectron2; DPT (arXiv
        2103.13413), section 3.1, whose readout operation is "project" with a class token, and
        "ignore" without; SETR (arXiv 2012.15840).

    Example:
    >>> model = keras_vit.ViT_Ti16(image_size=(64, 96))
    >>> maps = keras_vit.backbone(model, levels=("P3", "P4"), channels=32).output
    >>> maps["P3"].shape, maps["P4"].shape
    ((None, 8, 12, 32), (None, 4, 6, 32))
    """
    check_choice("kind", kind, KINDS)
    check_integer("channels", channels, minimum=1)
    copy = replace_head(model, 0)
    blocks = [block.name for block in find_blocks(copy)]
    is_of_blocks = kind == "blocks"
    is_right = isinstance(levels, (list, tuple)) and {*map(type, levels)} == {str}
    if levels is not None and not is_right:
        raise ValueError(f"`levels` must be a sequence of names. Received: levels={levels!r}")
    levels = tuple(levels or (_spread(blocks, NUM_MAPS) if is_of_blocks else LEVELS))
    # DPT takes finer maps from earlier blocks.
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
        maps = simple_pyramid(_patches(copy, blocks[-1], dtype), levels, *options)
    elif kind == "dpt":
        maps = {
            level: reassembled(_with_class_token(copy, name, level, dtype), level, *options)
            for level, name in zip(levels, _spread(blocks, len(levels)), strict=True)
        }
    else:
        maps = {name: _patches(copy, name, dtype) for name in levels}
    new = ImageModel(copy.input, maps, name=model.name)
    carry(model, new, keeps_head=False)
    set_origin(new, origin_of(model))
    return new


def _spread(blocks, count):
    """Return the last block of each of `count` equal parts; short models repeat some."""
    return [blocks[math.ceil((part + 1) * len(blocks) / count) - 1] for part in range(count)]


def _patches(model, name, dtype, map_name=None, with_class_token=False):
    """Return the patches of a layer's tokens as a map."""
    outputs = {layer.name: layer.output for layer in model.layers}
    blocks = [block.name for block in find_blocks(model)]
    # With the class token and registers, which are taken off: those from the blocks on.
    names = [layer for layer, output in outputs.items() if output.shape == outputs[blocks[0]].shape]
    names = names[names.index(blocks[0]) :]
    if name not in names:
        raise ValueError(
            f"`levels` must be among the layers whose outputs are all tokens: {', '.join(names)}. "
            f"Received: {name!r}"
        )
    count = sum(layer.num_new for layer in model.layers if isinstance(layer, LearnedTokens))
    options = {"dtype": dtype, "name": map_name or f"{name}_map"}
    layer = TokensToMap(token_stride(model), count, with_class_token, **options)
    return layer(outputs[name], model.input)


def _with_class_token(model, name, level, dtype):
    """Return the patches of a block, read together with the class token if there is one."""
    if not any(isinstance(layer, ClassToken) for layer in model.layers):
        return _patches(model, name, dtype, f"{level}_map")
    maps = _patches(model, name, dtype, f"{level}_map", with_class_token=True)
    width = maps.shape[-1] // 2
    return keras.layers.Dense(width, "gelu", dtype=dtype, name=f"{level}_readout")(maps)
