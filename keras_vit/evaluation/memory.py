"""What a training step keeps of an image, from a model's table row alone."""

from keras_vit.evaluation.geometry import (
    check_sizes,
    convolutions,
    count_patches,
    out_channels,
    resnet_of,
)
from keras_vit.models.resnet import downsampling
from keras_vit.models.variants import ResNetVariant


def count_activations(variant, image_size=224, pooling="token", remat=False):
    """Numbers that the backward pass of one image needs of the forward pass.

    They are what products, norms, GELUs and ReLUs were given, and the outputs of fused attention,
    without dropout: the least that is needed, and what PyTorch's own operations keep. XLA computes
    some of it again. More is kept where norms and GELUs are made of several operations: 1.8 times
    as much of a ViT by TensorFlow without XLA, where the attention's scores are kept too, and 1.25
    to 1.6 times of hybrids and ResNets by Keras on torch. Dropout adds a third. Beside them stand
    weights, gradients and the optimizer's state: 16 bytes a parameter for AdamW in float32.

    Args:
        variant: a row of `keras_vit.list_variants()`.
        image_size: side of the square image, in pixels.
        pooling: `"token"`, `"gap"` or `"map"`; a ResNet has always the second.
        remat: whether Transformer blocks keep their inputs alone, and one at a time computes the
            rest again.

    Returns:
        An integer; numbers have 4 bytes in float32 and 2 in bfloat16.

    Raises:
        ValueError: if the patches do not tile the image, or an argument is out of range.

    Example:
    >>> vit_b16 = keras_vit.list_variants()[4]
    >>> count_activations(vit_b16) * 4 // 2**20, count_activations(vit_b16, remat=True) * 4 // 2**20
    (118, 17)
    """
    check_sizes(pooling, image_size=image_size)
    image = 3 * image_size**2
    if isinstance(variant, ResNetVariant):
        return image + _bit_maps(image_size, **resnet_of(variant))
    maps = 0
    if variant.resnet_stages is not None:
        maps = _hybrid_maps(image_size, **resnet_of(variant))
    width, hidden = variant.embedding_dim, variant.mlp_dim
    patches = count_patches(variant, image_size)
    tokens = patches + (pooling == "token")
    # Two residual inputs, their norms, queries, keys, values, what attention gives and that with
    # the heads side by side; of the MLP what GELU is given and what it gives.
    block = tokens * (9 * width + 2 * hidden)
    blocks = variant.depth * tokens * width + block if remat else variant.depth * block
    # Of the last norm, its input, and of the head the representation.
    head = tokens * width + width
    if pooling == "map":
        # Keys and values of the tokens; of the probe what attention, norm and MLP are given.
        head += 3 * tokens * width + 6 * width + 2 * hidden
    return image + maps + blocks + head


def _bit_maps(image_size, stages, width):
    """BiT's: of the root what it gives, then each norm's input and each ReLU's output."""
    root = width * _side(image_size, 2) ** 2
    units = 0
    for (_, channels, _, before, _), is_projection in _marked(stages, width):
        units += 0 if is_projection else 2 * channels * _side(image_size, before) ** 2
    channels = out_channels(stages, width)
    last = 2 * channels * _side(image_size, downsampling(stages)) ** 2
    return root + units + last + channels


def _hybrid_maps(image_size, stages, width):
    """The hybrids': what the root and its ReLU give, and each convolution is given and gives."""
    maps = 2 * width * _side(image_size, 2) ** 2
    for (_, channels, filters, before, stride), is_projection in _marked(stages, width):
        # A projection is given what the first convolution beside it is given.
        inputs = 0 if is_projection else channels * _side(image_size, before) ** 2
        maps += inputs + filters * _side(image_size, stride) ** 2
    return maps + out_channels(stages, width) * _side(image_size, downsampling(stages)) ** 2


def _marked(stages, width):
    """The convolutions behind the root, and whether each is a projection beside three others."""
    _, *rest = convolutions(stages, width)
    place = 0
    for units in stages:
        for unit in range(units):
            for number in range(4 if unit == 0 else 3):
                yield rest[place], number == 3
                place += 1


def _side(image_size, stride):
    return -(-image_size // stride)
