"""Count parameters, floating-point operations and activations of a model from its options."""

import math

import numpy as np

from keras_vit.models.options import Options, is_resnet, resnet_stride


def count_parameters(
    variant: Options, num_classes: int = 1000, image_size: int | tuple[int, int] = 224
) -> int:
    """Count the parameters of a model with a linear head.

    Args:
        variant: an entry of `keras_vit.list_variants()`, perhaps with another `pooling`,
            `position_embedding`, `position_placement` or `axial`. All other layers are counted as
            in the paper's models.
        num_classes: number of classes of the head; 0 for no head.
        image_size: int or `(height, width)`, in pixels.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> count_parameters(keras_vit.list_variants()[4])
    86567656
    """
    options = variant.replace(image_size=image_size)
    root_and_units = list(_convolutions(options))
    kernels = sum(size**2 * i * o for size, i, o, *_ in root_and_units)
    kernels += sum((i + 1) * o for _, i, o in _dense(options, num_classes))
    if is_resnet(options):
        # A norm precedes the head and each convolution, except the root and the projections.
        norms = sum(i for _, i, *_, is_projection in root_and_units[1:] if not is_projection)
        return kernels + 2 * (norms + _out_channels(options))
    # A norm follows each convolution of a hybrid.
    norms = sum(o for _, _, o, *_ in root_and_units)
    count = (4 if options.axial else 2) * options.depth + 1 + (options.pooling == "map")
    return kernels + 2 * (norms + count * options.embedding_dim) + _embeddings(options)


def count_flops(
    variant: Options,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] = 224,
    with_padding: bool = True,
) -> int:
    """Count the floating-point operations of one image's forward pass.

    A multiplication and an addition count as two operations. Only matrix products and convolutions
    are counted. All other operations are 0.4 % in ViT-B/16 and 2 % in BiT-R50x1.

    Args:
        variant: as in `count_parameters`.
        num_classes: number of classes of the head; 0 for no head.
        image_size: int or `(height, width)`, in pixels.
        with_padding: whether to count products with the zero padding of feature maps, which are 4 %
            of the products of a ResNet. TensorFlow's profiler counts these products, XLA does not.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> round(count_flops(keras_vit.list_variants()[4]) / 1e9, 1)
    35.1
    """
    options = variant.replace(image_size=image_size)
    products = sum(positions * i * o for positions, i, o in _dense(options, num_classes))
    for size, i, o, stride_in, stride, _ in _convolutions(options):
        sides = zip(_sides(options, stride_in), _sides(options, stride), strict=True)
        per_side = [
            size * after if with_padding else products_of(size, side, after, stride // stride_in)
            for side, after in sides
        ]
        products += math.prod(per_side) * i * o
    return 2 * (products + (0 if is_resnet(options) else _attention_products(options)))


def count_training_exaflops(variant, num_examples, epochs, num_classes=1000, image_size=224):
    """Count the compute of a training run, in exaFLOPs (10^18 floating-point operations).

    For each product in the forward pass, the backward pass has two products, for the gradients of
    inputs and of weights. So a training step costs three forward passes. Products with zero padding
    are not counted, as in section 4.4 and table 6 of the paper (arXiv 2010.11929).
    """
    forward = count_flops(variant, num_classes, image_size, with_padding=False)
    return 3 * forward * num_examples * epochs / 1e18


def count_activations(
    variant: Options, image_size: int | tuple[int, int] = 224, remat: bool = False
) -> int:
    """Count the numbers that the backward pass of one image needs from the forward pass.

    These numbers are the inputs of products, norms, GELUs and ReLUs, and the outputs of fused
    attention. PyTorch's own operations keep exactly these numbers; XLA recomputes some of them.
    Backends that compute a norm or a GELU in several operations keep more: TensorFlow without XLA,
    which also keeps the attention scores, 1.8 times as much for a ViT; Keras on torch 1.25 to 1.6
    times as much for hybrids and ResNets. Dropout, which is not counted, would add a third.
    Weights, gradients and the state of the optimizer are not counted either: these take 16 bytes
    per parameter for AdamW in float32.

    Args:
        variant: as in `count_parameters`.
        image_size: int or `(height, width)`, in pixels.
        remat: whether Transformer blocks keep only their inputs, and the backward pass recomputes
            other numbers, one block at a time.

    Returns:
        An integer; numbers have 4 bytes in float32 and 2 in bfloat16.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> vit_b16 = keras_vit.list_variants()[4]
    >>> count_activations(vit_b16) * 4 // 2**20, count_activations(vit_b16, remat=True) * 4 // 2**20
    (111, 17)
    """
    options = variant.replace(image_size=image_size)
    maps = options.image_channels * math.prod(options.image_size) + _kept_maps(options)
    if is_resnet(options):
        return maps
    width, hidden, tokens = options.embedding_dim, options.mlp_dim, _num_tokens(options)
    # `8 * width`: the inputs and the outputs of two norms, queries, keys, values, and the output of
    # the attention. `2 * hidden`: the input and the output of GELU; a gated MLP also keeps the gate
    # and the product.
    block = tokens * (8 * width + (4 if options.gated_mlp else 2) * hidden)
    if options.position_embedding == "relative":
        # The bias of the attention, and the output of the attention with concatenated heads.
        block += options.num_heads * tokens**2 + tokens * width
    depth = options.depth * (2 if options.axial else 1)
    blocks = depth * tokens * width + block if remat else depth * block
    # The inputs of the last norm and of the head.
    head = tokens * width + _pooled_width(options)
    if options.pooling == "map":
        # `3 * tokens * width`: the normalized tokens, keys and values. The other numbers belong to
        # the probe: the inputs of the attention, the norm and the MLP.
        head += 3 * tokens * width + 6 * width + 2 * hidden
    return maps + blocks + head


def products_of(size, side, side_out, stride):
    """Count the products of a kernel along one side of a map, without products with padding."""
    indices = np.arange(side_out)[:, None] * stride + np.arange(size) - (size - 1) // 2
    return int(((indices >= 0) & (indices < side)).sum())


def _dense(options, num_classes):
    """Yield `(positions, channels in, channels out)` of dense layers and the patch embedding."""
    if is_resnet(options):
        yield 1, _out_channels(options), num_classes
        return
    width, hidden = options.embedding_dim, options.mlp_dim
    patches, tokens = math.prod(options.grid), _num_tokens(options)
    yield patches, math.prod(options.patch_size) * _out_channels(options), width
    # An axial block has the dense layers of two blocks.
    for _ in range(options.depth * (2 if options.axial else 1)):
        yield from [(tokens, width, width)] * 4
        yield from [(tokens, width, hidden)] * (2 if options.gated_mlp else 1)
        yield tokens, hidden, width
    if options.pooling == "map":
        # A probe attends to the patches (query and keys, output and values), and has an MLP.
        yield from [(1, width, width), (patches, width, width)] * 2
        yield from [(1, width, hidden), (1, hidden, width)]
    yield 1, _pooled_width(options), num_classes


def _attention_products(options):
    """Count the multiplications of queries by keys, and of attention weights by values."""
    width, patches, tokens = options.embedding_dim, math.prod(options.grid), _num_tokens(options)
    # A token attends to the tokens of its column and of its row, or to all tokens.
    block = 2 * tokens * width * (sum(options.grid) if options.axial else tokens)
    if options.position_embedding == "relative":
        # Each query is multiplied by the embeddings of all offsets, and by a row of zeros.
        block += 2 * patches * width * patches
    return options.depth * block + (2 * patches * width if options.pooling == "map" else 0)


def _embeddings(options):
    """Count the parameters of a ViT's prefix tokens, position embeddings and probe."""
    width, (rows, columns) = options.embedding_dim, options.grid
    learned = width * (options.num_prefix_tokens + (options.pooling == "map"))
    if options.position_embedding == "relative":
        # All heads share one embedding per offset.
        return learned + options.depth * (2 * rows * columns - 1) * (width // options.num_heads)
    tokens = rows * columns + options.has_class_token
    table = {"learned": tokens * width, "learned2d": (rows + columns) * (width // 2)}
    tables = options.depth if options.position_placement == "every_layer" else 1
    return learned + tables * table.get(options.position_embedding, 0)


def _kept_maps(options):
    """Count the numbers that a model's ResNet keeps for the backward pass; 0 without ResNet."""
    stages, width = _resnet_of(options)
    if stages is None:
        return 0
    is_v2 = is_resnet(options)
    _, *units = _convolutions(options)
    # The output of the root convolution, and in a hybrid also the output of its ReLU.
    kept = (1 if is_v2 else 2) * width * _pixels(options, 2)
    for _, i, o, stride_in, stride, is_projection in units:
        # A projection has the same input as the first convolution of its unit, which is counted
        # once. BiT keeps the inputs of norms and of convolutions; a hybrid keeps the inputs and the
        # outputs of convolutions.
        inputs = 0 if is_projection else i * _pixels(options, stride_in)
        kept += 2 * inputs if is_v2 else inputs + o * _pixels(options, stride)
    # The last feature map; in BiT also the normalized map and the pooled vector.
    channels = _out_channels(options)
    last = channels * _pixels(options, resnet_stride(stages))
    return kept + (2 * last + channels if is_v2 else last)


def _convolutions(options):
    """Yield the convolutions of the ResNet of a model, the root first; nothing without ResNet.

    A convolution is `(kernel size, channels in, channels out, stride in, stride out,
    is_projection)`. The strides are relative to the image. A projection comes last in its unit.
    """
    stages, width = _resnet_of(options)
    if stages is None:
        return
    yield 7, options.image_channels, width, 1, 2, False
    channels, stride_in = width, 4
    for stage, units in enumerate(stages):
        filters, stride = width * 2**stage, resnet_stride(stages[: stage + 1])
        for unit in range(units):
            yield 1, channels, filters, stride_in, stride_in, False
            yield 3, filters, filters, stride_in, stride, False
            yield 1, filters, 4 * filters, stride, stride, False
            if unit == 0:
                yield 1, channels, 4 * filters, stride_in, stride, True
            channels, stride_in = 4 * filters, stride


def _resnet_of(net):
    """Return the stages (`None` without ResNet) and the width of the ResNet of a model."""
    return (net.stages, net.width) if is_resnet(net) else (net.resnet_stages, net.resnet_width)


def _out_channels(options):
    """Return the number of channels after the ResNet; without ResNet, of the image."""
    stages, width = _resnet_of(options)
    if stages is None:
        return options.image_channels
    return 4 * width * 2 ** (len(stages) - 1) if stages else width


def _pooled_width(options):
    """Return the size of the pooled vector; pooling by `token_gap` concatenates two vectors."""
    return options.embedding_dim * (2 if options.pooling == "token_gap" else 1)


def _num_tokens(options):
    return math.prod(options.grid) + options.num_prefix_tokens


def _sides(options, stride):
    """Return the sides of a feature map: the image's sides divided by a stride, rounded up."""
    return [-(-side // stride) for side in options.image_size]


def _pixels(options, stride):
    return math.prod(_sides(options, stride))
