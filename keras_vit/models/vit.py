"""Vision Transformers, plain and on a ResNet, as Functional Keras models."""

import keras

from keras_vit.core.arguments import (
    as_pair,
    check_choice,
    check_epsilon,
    check_flags,
    check_heads,
    check_integer,
    check_rate,
    grid_size,
)
from keras_vit.core.choices import ATTENTION_PATHS, POOLINGS
from keras_vit.layers import AxialTransformerBlock, TransformerBlock
from keras_vit.layers.activations import check_activations
from keras_vit.layers.normalization import LAYER_NORM_EPSILON, layer_norm
from keras_vit.models.base import ImageModel, carries_options
from keras_vit.models.checks import (
    block_grids,
    check_axial,
    check_layer_scale,
    check_pooling,
    check_positions,
    has_class_token,
)
from keras_vit.models.resnet import check_hybrid, hybrid_maps
from keras_vit.models.stem_and_head import (
    Positions,
    activation_name,
    classification_head,
    embed,
    pool,
    pooling_layer,
)
from keras_vit.models.variants import total_stride


# To add an option, see "A layer option" in CONTRIBUTING.md.
@carries_options
def vision_transformer(
    patch_size: int | tuple[int, int],
    embedding_dim: int,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] | None = 224,
    image_channels: int = 3,
    pooling: str | None = "token",
    representation_size: int | None = None,
    classifier_activation: str | None = None,
    activation: str = "gelu_tanh",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    class_token: bool | None = None,
    num_registers: int = 0,
    position_embedding: str = "learned",
    qkv_bias: bool = True,
    qk_norm: bool = False,
    layer_scale: float | None = None,
    pre_norm: bool = False,
    fc_norm: bool = False,
    epsilon: float = LAYER_NORM_EPSILON,
    resnet_stages: tuple[int, ...] | None = None,
    resnet_width: int = 64,
    name: str = "vision_transformer",
    dtype: str | None = None,
    remat: bool = False,
    attention_path: str = "fused",
    patch_bias: bool | None = None,
    distillation_token: bool = False,
    gated_mlp: bool = False,
    key_bias: bool | None = None,
    projection_dim: int | None = None,
    final_norm: bool = True,
    position_placement: str = "stem",
    axial: bool = False,
) -> ImageModel:
    """Build a Vision Transformer of any size.

    The model takes images `(batch, height, width, channels)`, float, in [-1, 1] (see
    `keras_vit.preprocess`), and returns logits `(batch, num_classes)` in float32. Its layers are
    named `patch_embedding`, `class_token`, `position_embedding`, `block_0` ..., `encoder_norm`,
    `pooling`, `projection`, `pre_logits` and `head`. The layers of a hybrid's ResNet are named
    `root_conv`, `root_norm`, `root_pool`, `stage_1_unit_1` ... The options from `class_token` to
    `epsilon`, and those after `attention_path`, describe newer models, and ablations of the paper:
    with their defaults the model is the paper's.

    Args:
        patch_size: int or `(height, width)` of a patch, in pixels; in a hybrid, in positions of the
            feature map.
        embedding_dim: width of a token.
        depth: number of Transformer blocks.
        num_heads: attention heads of a block; a divisor of `embedding_dim`.
        mlp_dim: hidden width of a block's MLP.
        num_classes: width of the head; 0 for no head: the model returns the representation.
        image_size: int or `(height, width)`, multiples of the patch size. In a hybrid, multiples of
            the patch size times the ResNet's stride: 4, doubled by each stage after the first.
            `None` for any such size, except with rotary or relative positions and axial blocks:
            position embeddings, stored for 224 pixels, are then interpolated in each call.
        image_channels: channels of an image.
        pooling: `"token"` (class token), `"gap"` (mean of the patch tokens), `"map"` (multi-head
            attention pooling of the patch tokens), `"token_gap"` (class token and mean of the patch
            tokens, side by side) or `None` (all tokens, the class token first).
        representation_size: width of the pre-training head's hidden tanh layer `pre_logits`, or
            `None` for no such layer.
        classifier_activation: activation of the head; `None` returns logits.
        activation: activation of the MLPs: `"gelu_tanh"` (the original's), `"gelu"` (erf) for
            weights trained in PyTorch, or another one, such as `"quick_gelu"` (CLIP) or `"silu"`.
        dropout: dropout rate after the position embedding, the attention and each layer of an MLP.
        attention_dropout: rate at which attention weights are dropped.
        stochastic_depth: rate at which the last block drops a residual branch; it grows linearly
            from 0 in the first block.
        class_token: whether there is a class token; by default only if `pooling` is `"token"`,
            `"token_gap"` or `None`.
        num_registers: number of register tokens between the class token and the patches.
        position_embedding: `"learned"`, one embedding per token; `"learned2d"`, one per row and
            one per column of patches; `"sincos2d"`, fixed sines and cosines; `"rotary"`, a rotation
            of queries and keys in each block, as in DINOv3; `"relative"`, one embedding per offset
            of two patches in each block, as a key of its attention; or `"none"`.
        qkv_bias: whether query, key and value projections have biases.
        qk_norm: whether queries and keys are normalized over the width of each head.
        layer_scale: initial value of LayerScale's factors; `None` for no LayerScale.
        pre_norm: whether there is a LayerNorm before the first block, as in CLIP.
        fc_norm: whether the last LayerNorm comes after the pooling `"gap"`, as in timm, and not
            before it.
        epsilon: epsilon of every LayerNorm: 1e-6 in the original, 1e-12 by default in transformers.
        resnet_stages: number of residual units per stage of a hybrid's ResNet, whose feature map is
            cut into patches, such as `(3, 4, 9)`; `()` for its root alone; `None` for no ResNet.
        resnet_width: channels of the ResNet's first convolution, a multiple of 32.
        name: name of the model.
        dtype: dtype or policy of the layers, such as `"mixed_bfloat16"`; `None` for the global
            policy. LayerNorm statistics, softmax and logits are float32 under every policy. With
            `"mixed_float16"`, `compile` and our recipes scale the loss.
        remat: whether training keeps only the input of each Transformer block and recomputes the
            rest for the gradients (rematerialization, gradient checkpointing): less memory, for
            about 1.2 times the time, and the same gradients. On CPUs, JAX saves no memory.
        attention_path: `"fused"` for the backend's fused attention where it is faster, or
            `"explicit"` for products with the matrix of scores. Both compute the same.
        patch_bias: whether the patch projection has a bias; by default only without `pre_norm`.
        distillation_token: whether there is a distillation token after the class token, and the
            head is the mean of two classifiers, one per token, as in DeiT.
        gated_mlp: whether the MLPs of the blocks are gated; with `activation="silu"` they are
            SwiGLUs.
        key_bias: whether key projections have biases; by default as `qkv_bias`.
        projection_dim: width of a linear projection without bias after the pooling, as in CLIP, or
            `None` for none.
        final_norm: whether there is a LayerNorm after the last block or, with `fc_norm`, after the
            pooling.
        position_placement: where the position embeddings `"learned"` and `"learned2d"` are added:
            `"stem"`, once before the first block; `"every_layer"`, in each block others, before
            `block_1` by `position_embedding_1`; or `"every_layer_shared"`, in each block the same.
            Those of the first block are always added at the stem, before the dropout.
        axial: whether each block is an `AxialTransformerBlock`, with attention along rows and then
            along columns of patches. There can be no class token and no registers, as patches alone
            have rows and columns: `pooling` must be `"gap"`, `"map"` or `None`.

    Returns:
        A Functional `keras.Model` that carries its options, see `keras_vit.models.ImageModel`.

    Raises:
        ValueError: if a size is not positive or `num_classes` negative, the patches do not tile the
            image, the heads do not divide the width, a rate is not in [0, 1), an option is unknown,
            or two options exclude each other.

    Reference:
        "An Image is Worth 16x16 Words", arXiv 2010.11929; hybrids: its section 3.1; positions and
        their placement: its appendix D.4; axial blocks: D.6.

    Example:
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=32, depth=2, num_heads=2, mlp_dim=64,
    ...     num_classes=10, image_size=(16, 24))
    >>> model.output.shape
    (None, 10)
    """
    # Variables are large: all arguments are checked before the first variable is made.
    embedding_dim = check_integer("embedding_dim", embedding_dim, minimum=1)
    depth = check_integer("depth", depth, minimum=1)
    mlp_dim = check_integer("mlp_dim", mlp_dim, minimum=1)
    image_channels = check_integer("image_channels", image_channels, minimum=1)
    num_classes = check_integer("num_classes", num_classes, minimum=0)
    num_registers = check_integer("num_registers", num_registers, minimum=0)
    if representation_size is not None:
        representation_size = check_integer("representation_size", representation_size, minimum=1)
    if projection_dim is not None:
        projection_dim = check_integer("projection_dim", projection_dim, minimum=1)
    check_heads(embedding_dim, num_heads, is_rotary=position_embedding == "rotary")
    check_rate("dropout", dropout)
    check_rate("attention_dropout", attention_dropout)
    check_rate("stochastic_depth", stochastic_depth)
    check_activations(activation, classifier_activation)
    check_choice("pooling", pooling, (*POOLINGS, None))
    check_positions(position_embedding, position_placement)
    class_token = has_class_token(pooling, axial) if class_token is None else class_token
    patch_bias = not pre_norm if patch_bias is None else patch_bias
    key_bias = qkv_bias if key_bias is None else key_bias
    check_flags(
        class_token=class_token,
        patch_bias=patch_bias,
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
        pre_norm=pre_norm,
        fc_norm=fc_norm,
        remat=remat,
        distillation_token=distillation_token,
        gated_mlp=gated_mlp,
        key_bias=key_bias,
        final_norm=final_norm,
        axial=axial,
    )
    check_epsilon(epsilon)
    check_choice("attention_path", attention_path, ATTENTION_PATHS)
    check_layer_scale(layer_scale)
    head = representation_size, projection_dim, fc_norm, final_norm
    check_pooling(pooling, class_token, distillation_token, *head)
    if axial:
        check_axial(pooling, position_embedding, class_token, num_registers)
    patch_size = as_pair(patch_size, "patch_size")
    image_size = None if image_size is None else as_pair(image_size, "image_size")
    resnet_stages, resnet_width = check_hybrid(resnet_stages, resnet_width)
    stride = total_stride(patch_size, resnet_stages)
    grid = image_size and grid_size(image_size, stride)
    grids = block_grids(position_embedding, axial, grid)
    normalized = {
        "patch_size": patch_size,
        "image_size": image_size,
        # The first block drops nothing.
        "stochastic_depth": stochastic_depth if depth > 1 else 0.0,
        "class_token": bool(class_token),
        "patch_bias": bool(patch_bias),
        "key_bias": bool(key_bias),
        "classifier_activation": activation_name(classifier_activation) if num_classes else None,
    }

    images = maps = keras.Input((*(image_size or (None, None)), image_channels), name="images")
    if resnet_stages is not None:
        maps = hybrid_maps(images, resnet_stages, resnet_width, dtype)
    num_prefix_tokens = class_token + distillation_token + num_registers
    positions = Positions(
        position_embedding, position_placement, images, grid, stride, num_prefix_tokens, dtype
    )
    tokens = embed(
        maps,
        patch_size,
        embedding_dim,
        positions,
        class_token=class_token,
        distillation_token=distillation_token,
        num_registers=num_registers,
        patch_bias=patch_bias,
        dtype=dtype,
    )
    tokens = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(tokens)
    if pre_norm:
        tokens = layer_norm(dtype, "pre_norm", epsilon)(tokens)
    make_block = AxialTransformerBlock if axial else TransformerBlock
    for index in range(depth):
        tokens = positions.at_block(tokens, index)
        tokens = make_block(
            num_heads,
            mlp_dim,
            activation=activation,
            dropout=dropout,
            attention_dropout=attention_dropout,
            stochastic_depth=stochastic_depth * index / max(depth - 1, 1),
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            layer_scale=layer_scale,
            epsilon=epsilon,
            remat=remat,
            attention_path=attention_path,
            gated_mlp=gated_mlp,
            key_bias=key_bias,
            dtype=dtype,
            name=f"block_{index}",
            **grids,
        )(tokens)
    if final_norm and not fc_norm:
        tokens = layer_norm(dtype, "encoder_norm", epsilon)(tokens)
    attention = num_heads, mlp_dim, activation, epsilon, attention_path
    layer = pooling_layer(pooling, num_prefix_tokens, distillation_token, attention, dtype)
    outputs = pool(tokens, pooling, layer, num_prefix_tokens, dtype)
    if fc_norm:
        outputs = layer_norm(dtype, "fc_norm", epsilon)(outputs)
    outputs = classification_head(
        outputs,
        num_classes,
        representation_size,
        projection_dim,
        classifier_activation,
        distillation_token,
        dtype,
    )
    return ImageModel(images, outputs, name=name), normalized
