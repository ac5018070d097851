"""Count parameters, floating-point operations and activations of a model from its options."""

import math

import numpy as np

from keras_vit.models.options import Options, is_resnet, resnet_stride


def count_parameters(
    variant: Options, num_classes: int = 1000, image_size: int | tuple[int, int] = 224
) -> int:
    """Count the parameters of a model with a linear head.

    Args:
        variant: a row of `keras_vit.list_variants()`, perhaps with another `pooling`,
            `position_embedding`, `position_placement` or `axial`. Everything else is counted as in
            the paper's models.
        num_classes: classes of the head; 0 for none.
        image_size: int or `(height, width)`, in pixels.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> count_parameters(keras_vit.list_variants()[4])
    86567656
    """
    row = variant.replace(image_size=image_size)
    root_and_units = list(_convolutions(row))
    kernels = sum(size**2 * i * o for size, i, o, *_ in root_and_units)
    kernels += sum((i + 1) * o for _, i, o in _dense(row, num_classes))
    if is_resnet(row):
        # A norm precedes the head and each convolution but the root and the projections.
        norms = sum(i for _, i, *_, is_projection in root_and_units[1:] if not is_projection)
        return kernels + 2 * (norms + _out_channels(row))
    # A norm follows each convolution of a hybrid.
    norms = sum(o for _, _, o, *_ in root_and_units)
    count = (4 if row.axial else 2) * row.depth + 1 + (row.pooling == "map")
    return kernels + 2 * (norms + count * row.embedding_dim) + _embeddings(row)


def count_flops(
    variant: Options,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] = 224,
    with_padding: bool = True,
) -> int:
    """Count the floating-point operations of one image's forward pass.

    A multiplication and an addition count as two operations. Only matrix products and convolutions
    are counted; the rest is 0.4 % for ViT-B/16 and 2 % for BiT-R50x1.

    Args:
        variant: as in `count_parameters`.
        num_classes: classes of the head; 0 for none.
        image_size: int or `(height, width)`, in pixels.
        with_padding: whether to count products with the zero padding of feature maps, 4 % of all in
            a ResNet. TensorFlow's profiler counts them, XLA does not.

    Returns:
        An integer.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> round(count_flops(keras_vit.list_variants()[4]) / 1e9, 1)
    35.1
    """
    row = variant.replace(image_size=image_size)
    products = sum(positions * i * o for positions, i, o in _dense(row, num_classes))
    for size, i, o, before, stride, _ in _convolutions(row):
        sides = zip(_sides(row, before), _sides(row, stride), strict=True)
        along = [
            size * after if with_padding else products_of(size, side, after, stride // before)
            for side, after in sides
        ]
        products += math.prod(along) * i * o
    return 2 * (products + (0 if is_resnet(row) else _attention_products(row)))


def count_training_exaflops(variant, num_examples, epochs, num_classes=1000, image_size=224):
    """Count the compute of a training run, in exaFLOPs (10^18 floating-point operations).

    For each product in the forward pass, the backward pass has two, for the gradients of inputs and
    of weights, so a step costs three forward passes. Products with zero padding are not counted, as
    in section 4.4 and table 6 of the paper (arXiv 2010.11929).
    """
    forward = count_flops(variant, num_classes, image_size, with_padding=False)
    return 3 * forward * num_examples * epochs / 1e18


def count_activations(
    variant: Options, image_size: int | tuple[int, int] = 224, remat: bool = False
) -> int:
    """Count the numbers that the backward pass of one image needs from the forward pass.

    Counted are the inputs of products, norms, GELUs and ReLUs, and the outputs of fused attention,
    without dropout. This is the minimum, and as much as PyTorch's own operations keep; XLA
    recomputes a part. Backends with norms and GELUs of several operations keep more: for a ViT, 1.8
    times as much by TensorFlow without XLA, which also keeps the attention scores; for hybrids and
    ResNets, 1.25 to 1.6 times as much by Keras on torch. Dropout adds a third. Weights, gradients
    and the optimizer's state are not counted: 16 bytes per parameter for AdamW in float32.

    Args:
        variant: as in `count_parameters`.
        image_size: int or `(height, width)`, in pixels.
        remat: whether Transformer blocks keep only their inputs, and recompute the rest, one block
            at a time.

    Returns:
        An integer; numbers have 4 bytes in float32 and 2 in bfloat16.

    Raises:
        ValueError: if the patches do not tile the image.

    Example:
    >>> vit_b16 = keras_vit.list_variants()[4]
    >>> count_activations(vit_b16) * 4 // 2**20, count_activations(vit_b16, remat=True) * 4 // 2**20
    (111, 17)
    """
    row = variant.replace(image_size=image_size)
    maps = 3 * math.prod(row.image_size) + _kept_maps(row)
    if is_resnet(row):
        return maps
    width, hidden, tokens = row.embedding_dim, row.mlp_dim, _num_tokens(row)
    # Two residual inputs, their norms, queries, keys, values and the output of attention; in the
    # MLP the input and the output of GELU, and, if it is gated, the gate and the product.
    block = tokens * (8 * width + (4 if row.gated_mlp else 2) * hidden)
    if row.position_embedding == "relative":
        # The bias of the attention, and its output with the heads side by side.
        block += row.num_heads * tokens**2 + tokens * width
    depth = row.depth * (2 if row.axial else 1)
    blocks = depth * tokens * width + block if remat else depth * block
    # The inputs of the last norm and of the head.
    head = tokens * width + _pooled_width(row)
    if row.pooling == "map":
        # Keys and values of the tokens; for the probe the inputs of attention, norm and MLP.
        head += 3 * tokens * width + 6 * width + 2 * hidden
    return maps + blocks + head


def products_of(size, side, side_out, stride):
    """Count the products of a kernel along one side of a map, without products with padding."""
    places = np.arange(side_out)[:, None] * stride + np.arange(size) - (size - 1) // 2
    return int(((places >= 0) & (places < side)).sum())


def _dense(row, num_classes):
    """Yield `(positions, channels in, channels out)` of dense layers and the patch embedding."""
    if is_resnet(row):
        yield 1, _out_channels(row), num_classes
        return
    width, hidden = row.embedding_dim, row.mlp_dim
    patches, tokens = math.prod(row.grid), _num_tokens(row)
    yield patches, math.prod(row.patch_size) * _out_channels(row), width
    # An axial block is two blocks.
    for _ in range(row.depth * (2 if row.axial else 1)):
        yield from [(tokens, width, width)] * 4
        yield from [(tokens, width, hidden)] * (2 if row.gated_mlp else 1)
        yield tokens, hidden, width
    if row.pooling == "map":
        # One probe attends to the patches (query and output, keys and values), and has an MLP.
        yield from [(1, width, width), (patches, width, width)] * 2
        yield from [(1, width, hidden), (1, hidden, width)]
    yield 1, _pooled_width(row), num_classes


def _attention_products(row):
    """Count the multiplications of queries by keys, and of attention weights by values."""
    width, patches, tokens = row.embedding_dim, math.prod(row.grid), _num_tokens(row)
    # A token attends to its column and its row, or to all tokens.
    block = 2 * tokens * width * (sum(row.grid) if row.axial else tokens)
    if row.position_embedding == "relative":
        # Each query is multiplied by the embeddings of all offsets, and by a row of zeros.
        block += 2 * patches * width * patches
    return row.depth * block + (2 * patches * width if row.pooling == "map" else 0)


def _embeddings(row):
    """Count the parameters of a ViT's prefix tokens, position embeddings and probe."""
    width, (rows, columns) = row.embedding_dim, row.grid
    learned = width * (row.num_prefix_tokens + (row.pooling == "map"))
    if row.position_embedding == "relative":
        # All heads share one embedding per offset.
        return learned + row.depth * (2 * rows * columns - 1) * (width // row.num_heads)
    tokens = rows * columns + row.has_class_token
    table = {"learned": tokens * width, "learned2d": (rows + columns) * (width // 2)}
    tables = row.depth if row.position_placement == "every_layer" else 1
    return learned + tables * table.get(row.position_embedding, 0)


def _kept_maps(row):
    """Count the numbers that a ResNet keeps for the backward pass; 0 for a plain ViT."""
    stages, width = _resnet_of(row)
    if stages is None:
        return 0
    is_v2 = is_resnet(row)
    _, *units = _convolutions(row)
    # The output of the root convolution, and in a hybrid also the output of its ReLU.
    kept = (1 if is_v2 else 2) * width * _pixels(row, 2)
    for _, i, o, before, stride, is_projection in units:
        # A projection has the same input as the first convolution of its unit. BiT keeps the inputs
        # of norms and of convolutions, a hybrid keeps the inputs and outputs of convolutions.
        inputs = 0 if is_projection else i * _pixels(row, before)
        kept += 2 * inputs if is_v2 else inputs + o * _pixels(row, stride)
    # The last map. In BiT, it is also normalized and pooled.
    channels = _out_channels(row)
    last = channels * _pixels(row, resnet_stride(stages))
    return kept + (2 * last + channels if is_v2 else last)


def _convolutions(row):
    """Yield the convolutions of a row's ResNet, the root first; none for a plain ViT.

    Each is `(kernel size, channels in, channels out, stride in, stride out, is_projection)`. The
    strides are relative to the image. A projection comes last in its unit.
    """
    stages, width = _resnet_of(row)
    if stages is None:
        return
    yield 7, 3, width, 1, 2, False
    channels, before = width, 4
    for stage, units in enumerate(stages):
        filters, stride = width * 2**stage, resnet_stride(stages[: stage + 1])
        for unit in range(units):
            yield 1, channels, filters, before, before, False
            yield 3, filters, filters, before, stride, False
            yield 1, filters, 4 * filters, stride, stride, False
            if unit == 0:
                yield 1, channels, 4 * filters, before, stride, True
            channels, before = 4 * filters, stride


def _resnet_of(row):
    """Return the stages and the width of a row's ResNet; the stages are `None` for a plain ViT."""
    return (row.stages, row.width) if is_resnet(row) else (row.resnet_stages, row.resnet_width)


def _out_channels(row):
    """Return the channels after the last stage; for a plain ViT 3, the channels of the image."""
    stages, width = _resnet_of(row)
    if stages is None:
        return 3
    return 4 * width * 2 ** (len(stages) - 1) if stages else width


def _pooled_width(row):
    """Return the size of the pooled vector; `token_gap` concatenates two vectors."""
    return row.embedding_dim * (2 if row.pooling == "token_gap" else 1)


def _num_tokens(row):
    return math.prod(row.grid) + row.num_prefix_tokens


def _sides(row, stride):
    """Return the sides of a map at a stride, rounded up."""
    return [-(-side // stride) for side in row.image_size]


def _pixels(row, stride):
    return math.prod(_sides(row, stride))
