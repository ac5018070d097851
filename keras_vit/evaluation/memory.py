"""Activations that a training step keeps, from a model's table row alone."""

from keras_vit.evaluation.geometry import (
    attended_lengths,
    convolutions,
    count_tokens,
    out_channels,
    pooled_width,
)
from keras_vit.models.options import Options, is_resnet, resnet_stride


def count_activations(
    variant: Options, image_size: int | tuple[int, int] = 224, remat: bool = False
) -> int:
    """Count the numbers that the backward pass of one image needs from the forward pass.

    They are the inputs of products, norms, GELUs and ReLUs, and the outputs of fused attention,
    without dropout: the least that is needed, and as much as PyTorch's own operations keep. XLA
    computes a part of them again. More is kept where norms and GELUs are made of several
    operations: 1.8 times as much for a ViT by TensorFlow without XLA, which keeps the attention
    scores too, and 1.25 to 1.6 times for hybrids and ResNets by Keras on torch. Dropout adds a
    third. Weights, gradients and the optimizer's state come on top: 16 bytes per parameter for
    AdamW in float32.

    Args:
        variant: as in `keras_vit.evaluation.compute.count_parameters`.
        image_size: side of the square image, in pixels.
        remat: whether Transformer blocks keep their inputs alone, and compute the rest again, one
            block at a time.

    Returns:
        An integer; numbers have 4 bytes in float32 and 2 in bfloat16.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> vit_b16 = keras_vit.list_variants()[4]
    >>> count_activations(vit_b16) * 4 // 2**20, count_activations(vit_b16, remat=True) * 4 // 2**20
    (111, 17)
    """
    image = 3 * image_size**2
    if is_resnet(variant):
        return image + _bit_maps(variant, image_size)
    maps = 0 if variant.resnet_stages is None else _hybrid_maps(variant, image_size)
    width, hidden = variant.embedding_dim, variant.mlp_dim
    tokens = count_tokens(variant, image_size)
    # Two residual inputs, their norms, queries, keys, values and the output of attention; in the
    # MLP the input and the output of GELU.
    # With a gate, the MLP also keeps the gate and the product.
    block = tokens * (8 * width + (4 if variant.gated_mlp else 2) * hidden)
    if variant.position_embedding == "relative":
        # The bias of the attention, and its output with the heads side by side.
        block += variant.num_heads * tokens**2 + tokens * width
    # An axial block is two blocks.
    depth = variant.depth * len(attended_lengths(variant, image_size))
    blocks = depth * tokens * width + block if remat else depth * block
    # The inputs of the last norm and of the head.
    head = tokens * width + pooled_width(variant)
    if variant.pooling == "map":
        # Keys and values of the tokens; for the probe the inputs of attention, norm and MLP.
        head += 3 * tokens * width + 6 * width + 2 * hidden
    return image + maps + blocks + head


def _bit_maps(variant, image_size):
    """Count BiT's: the output of the root, then each norm's input and each ReLU's output."""
    _, *others = convolutions(variant)
    kept = variant.width * _pixels(image_size, 2)
    for _, channels, _, before, _, is_projection in others:
        kept += 0 if is_projection else 2 * channels * _pixels(image_size, before)
    channels, stride = out_channels(variant), resnet_stride(variant.stages)
    return kept + 2 * channels * _pixels(image_size, stride) + channels


def _hybrid_maps(variant, image_size):
    """Count the hybrids': outputs of the root and its ReLU, in- and outputs of convolutions."""
    (_, _, width, *_), *others = convolutions(variant)
    kept = 2 * width * _pixels(image_size, 2)
    for _, channels, filters, before, stride, is_projection in others:
        # A projection has the same input as the first convolution of its unit.
        inputs = 0 if is_projection else channels * _pixels(image_size, before)
        kept += inputs + filters * _pixels(image_size, stride)
    stride = resnet_stride(variant.resnet_stages)
    return kept + out_channels(variant) * _pixels(image_size, stride)


def _pixels(image_size, stride):
    """Return the number of positions of a map; strides round its side up."""
    return (-(-image_size // stride)) ** 2
