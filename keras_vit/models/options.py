"""`VitOptions` and `ResNetOptions`: the options of models, for builders, variants and files."""

import dataclasses

import numpy as np

from keras_vit.core.arguments import as_pair, check_choice, check_options, grid_size

# Used for models that take images of any size, and for files that do not record an image size (of
# ResNets and of models with fixed position embeddings).
DEFAULT_IMAGE_SIZE = 224
# Poolings to one vector per image, and the poolings that use the class token.
POOLINGS = ("token", "gap", "map", "token_gap")
CLASS_TOKEN_POOLINGS = ("token", "token_gap")
POSITION_EMBEDDINGS = ("learned", "learned2d", "sincos2d", "none", "rotary", "relative")
# Where learned position embeddings are added, in the words of table 8 of the ViT paper.
POSITION_PLACEMENTS = ("stem", "every_layer", "every_layer_shared")
# Position embeddings that the attention layers compute. They need an image size.
ATTENTION_EMBEDDINGS = ("rotary", "relative")

# The options of layers before the head that a new head replaces, at their defaults.
NO_HEAD_LAYERS = {"representation_size": None, "projection_dim": None, "unit_norm": False}

# Kinds of options: sizes, which the name of a variant determines; options that only change
# training; and options that change how the outputs are computed, but not the outputs.
SIZE, TRAINING, RUNTIME = ({"kind": kind} for kind in ("size", "training", "runtime"))


def _field(kind, default=dataclasses.MISSING):
    return dataclasses.field(default=default, metadata=kind)


class Options:
    """Base class of `VitOptions` and `ResNetOptions`."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # Options are stored as JSON, which has no tuples, functions or NumPy numbers.
            if isinstance(value, list):
                value = tuple(value)
            elif isinstance(value, np.generic):
                value = value.item()
            elif callable(value) and value.__module__.startswith("keras."):
                value = value.__name__
            object.__setattr__(self, field.name, value)
        for name in ("patch_size", "image_size"):
            if getattr(self, name, None) is not None:
                object.__setattr__(self, name, as_pair(getattr(self, name), name))
        if self.classifier_activation == "linear" or not self.num_classes:
            object.__setattr__(self, "classifier_activation", None)
        if self.dtype is not None and not isinstance(self.dtype, str):
            object.__setattr__(self, "dtype", self.dtype.name)

    def replace(self, **changes):
        """Return the options with changes."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def names(cls, *kinds):
        """Return the names of the options of some kinds; by default, of options without a kind."""
        fields = [(field.name, field.metadata.get("kind")) for field in dataclasses.fields(cls)]
        return [name for name, kind in fields if (kind in kinds if kinds else kind is None)]

    @property
    def sizes(self):
        """The options that the name of a variant determines, by name."""
        return {name: getattr(self, name) for name in self.names("size")}

    def resolved(self):
        """Return the options with values instead of `None` where other options determine them."""
        return self


@dataclasses.dataclass(frozen=True)
class VitOptions(Options):
    """The options of a Vision Transformer, plain or hybrid (on a ResNet).

    The defaults are those of the paper's models. The options from `class_token` to `epsilon`, and
    the options after `attention_path`, are for ablations of the paper and for newer models.

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
            `None` if images may have any such size: position embeddings, stored for 224 pixels, are
            then interpolated in each call. With rotary or relative position embeddings, or axial
            blocks, `None` is an error.
        image_channels: channels of an image.
        pooling: `"token"` (class token), `"gap"` (mean of the patch tokens), `"map"` (multi-head
            attention pooling of the patch tokens), `"token_gap"` (class token and mean of the patch
            tokens, concatenated) or `None` (all tokens, the class token first).
        representation_size: width of the pre-training head's hidden tanh layer `pre_logits`, or
            `None` for no such layer.
        classifier_activation: activation of the head; `None` returns logits.
        activation: activation of the MLPs: `"gelu_tanh"` (the original's), `"gelu"` (erf) for
            weights trained in PyTorch, or another name, such as `"quick_gelu"` (CLIP) or `"silu"`.
        dropout: dropout rate after the position embedding, the attention and each layer of an MLP.
        attention_dropout: rate at which attention weights are dropped.
        stochastic_depth: rate at which the last block drops a residual branch; it grows linearly
            from 0 in the first block.
        class_token: whether there is a class token; by default only if `pooling` is `"token"`,
            `"token_gap"` or `None`.
        num_registers: number of register tokens between the class token and the patches.
        position_embedding: `"learned"`, one embedding per token; `"learned2d"`, one embedding per
            row and one per column of patches; `"sincos2d"`, fixed sines and cosines; `"rotary"`, a
            rotation of queries and keys in each block, as in DINOv3; `"relative"`, in each block
            one embedding per offset of two patches, whose product with the query is added to the
            logit; or `"none"`.
        qkv_bias: whether query, key and value projections have biases.
        qk_norm: whether LayerNorms over the width of each head normalize queries and keys.
        layer_scale: initial value of LayerScale's factors; `None` for no LayerScale.
        pre_norm: whether there is a LayerNorm before the first block, as in CLIP.
        fc_norm: whether the last LayerNorm comes after the pooling `"gap"`, as in timm, instead of
            before the pooling.
        epsilon: epsilon of every LayerNorm: 1e-6 in the original, 1e-12 by default in transformers.
        resnet_stages: number of residual units in each stage of a hybrid's ResNet, such as
            `(3, 4, 9)`; `()` for a ResNet that only has its root; `None` for no ResNet. The feature
            map of the ResNet is cut into patches.
        resnet_width: channels of the ResNet's first convolution, a multiple of 32.
        name: name of the model.
        dtype: dtype or policy of the layers, such as `"mixed_bfloat16"`; `None` for the global
            policy. LayerNorm statistics, softmax and logits are float32 under every policy. With
            `"mixed_float16"`, `compile` and our recipes scale the loss.
        remat: whether training keeps only the input of each Transformer block, and computes the
            block again for the gradients (rematerialization, gradient checkpointing). This takes
            less memory, except with JAX on CPUs, and about 1.2 times the time. The gradients are
            the same.
        attention_path: `"fused"` for the backend's fused attention where it is faster, or
            `"explicit"` for products with the matrix of scores. The outputs are the same.
        patch_bias: whether the patch projection has a bias; by default only without `pre_norm`.
        distillation_token: whether there is a distillation token after the class token, and the
            head is the mean of two classifiers, one per token, as in DeiT.
        gated_mlp: whether the MLPs of the blocks are gated; with `activation="silu"` they are
            SwiGLUs.
        key_bias: whether key projections have biases; by default the value of `qkv_bias`.
        projection_dim: width of a linear projection without bias after the pooling, as in CLIP;
            `None` for no projection.
        final_norm: whether there is a LayerNorm after the last block or, with `fc_norm`, after the
            pooling.
        position_placement: where the position embeddings `"learned"` and `"learned2d"` are added:
            `"stem"`, once before the first block; `"every_layer"`, before each block with separate
            embeddings (`position_embedding_1` before `block_1`); or `"every_layer_shared"`, before
            each block with the same embeddings. The embeddings before the first block are always
            added before the dropout.
        axial: whether each block is an `AxialTransformerBlock`, with attention within rows and then
            within columns of patches. A class token or registers would have no row and no column,
            so they are not allowed, and `pooling` must be `"gap"`, `"map"` or `None`.
        unit_norm: whether the vector before the head is divided by its Euclidean norm, as in
            zero-shot classifiers (see `keras_vit.zero_shot`).

    Raises:
        ValueError: if an option is unknown, or two options exclude each other.

    Example:
    >>> options = keras_vit.list_variants()[0]
    >>> options.depth, options.replace(image_size=64).grid
    (12, (4, 4))
    """

    patch_size: int | tuple[int, int] = _field(SIZE)
    embedding_dim: int = _field(SIZE)
    depth: int = _field(SIZE)
    num_heads: int = _field(SIZE)
    mlp_dim: int = _field(SIZE)
    num_classes: int = 1000
    image_size: int | tuple[int, int] | None = DEFAULT_IMAGE_SIZE
    image_channels: int = 3
    pooling: str | None = "token"
    representation_size: int | None = None
    classifier_activation: str | None = None
    activation: str = "gelu_tanh"
    dropout: float = _field(TRAINING, 0.0)
    attention_dropout: float = _field(TRAINING, 0.0)
    stochastic_depth: float = _field(TRAINING, 0.0)
    class_token: bool | None = None
    num_registers: int = 0
    position_embedding: str = "learned"
    qkv_bias: bool = True
    qk_norm: bool = False
    layer_scale: float | None = None
    pre_norm: bool = False
    fc_norm: bool = False
    epsilon: float = 1e-6
    resnet_stages: tuple[int, ...] | None = _field(SIZE, None)
    resnet_width: int = _field(SIZE, 64)
    name: str = _field(RUNTIME, "vision_transformer")
    dtype: str | None = _field(RUNTIME, None)
    remat: bool = _field(RUNTIME, False)
    attention_path: str = _field(RUNTIME, "fused")
    patch_bias: bool | None = None
    distillation_token: bool = False
    gated_mlp: bool = _field(SIZE, False)
    key_bias: bool | None = None
    projection_dim: int | None = None
    final_norm: bool = True
    position_placement: str = "stem"
    axial: bool = False
    unit_norm: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_choice("pooling", self.pooling, (*POOLINGS, None))
        check_choice("position_embedding", self.position_embedding, POSITION_EMBEDDINGS)
        check_choice("position_placement", self.position_placement, POSITION_PLACEMENTS)
        for is_broken, rule, names in self._rules():
            if is_broken:
                received = ", ".join(f"{name}={getattr(self, name)!r}" for name in names.split())
                raise ValueError(f"{rule}. Received: {received}")

    def _rules(self):
        """Yield `(is_broken, rule, option names)` of the rules about combinations of options."""
        yield (
            self.pooling in CLASS_TOKEN_POOLINGS and not self.has_class_token,
            f"`pooling={self.pooling!r}` needs a class token",
            "class_token",
        )
        yield (
            self.distillation_token
            and (self.pooling, self.representation_size, self.projection_dim, self.unit_norm)
            != ("token", None, None, False),
            "`distillation_token` needs `pooling='token'`, and neither `representation_size` nor "
            "`projection_dim` nor `unit_norm`",
            "pooling representation_size projection_dim unit_norm",
        )
        yield (
            self.fc_norm and not (self.pooling == "gap" and self.final_norm),
            "`fc_norm` needs `pooling='gap'` and `final_norm=True`",
            "pooling final_norm",
        )
        yield (
            self.position_placement != "stem"
            and self.position_embedding not in ("learned", "learned2d"),
            "`position_placement` must be 'stem' unless `position_embedding` is learned",
            "position_placement position_embedding",
        )
        # Rows and columns get half of the width each, and sines and cosines half of that.
        divisors = {"learned2d": 2, "sincos2d": 4, "rotary": 4 * (self.num_heads or 1)}
        divisor = divisors.get(self.position_embedding, 1)
        yield (
            self.embedding_dim % divisor != 0,
            f"`embedding_dim` must be a multiple of {divisor} for this `position_embedding`",
            "embedding_dim position_embedding",
        )
        yield (
            self.axial
            and (self.num_prefix_tokens > 0 or self.position_embedding in ATTENTION_EMBEDDINGS),
            "`axial=True` needs a model without class token, distillation token and registers, and "
            f"a `position_embedding` that is not one of {ATTENTION_EMBEDDINGS}",
            "pooling class_token num_registers position_embedding",
        )

    @property
    def has_class_token(self):
        if self.class_token is not None:
            return self.class_token
        return self.pooling in CLASS_TOKEN_POOLINGS or (self.pooling is None and not self.axial)

    @property
    def has_patch_bias(self):
        return not self.pre_norm if self.patch_bias is None else self.patch_bias

    @property
    def has_key_bias(self):
        return self.qkv_bias if self.key_bias is None else self.key_bias

    @property
    def num_prefix_tokens(self):
        """Number of tokens before the patches: class token, distillation token, registers."""
        return self.has_class_token + self.distillation_token + self.num_registers

    @property
    def stride(self):
        """`(height, width)` of the part of an image that one token represents, in pixels."""
        factor = 1 if self.resnet_stages is None else resnet_stride(self.resnet_stages)
        return tuple(factor * size for size in self.patch_size)

    @property
    def grid(self):
        """`(rows, columns)` of the patches; `None` for images of any size."""
        return self.image_size and grid_size(self.image_size, self.stride)

    def resolved(self):
        return self.replace(
            class_token=self.has_class_token,
            patch_bias=self.has_patch_bias,
            key_bias=self.has_key_bias,
        )


@dataclasses.dataclass(frozen=True)
class ResNetOptions(Options):
    """The options of a ResNet with GroupNorm and weight standardization.

    Args:
        stages: number of residual units of each stage, such as `(3, 4, 6, 3)` for a ResNet-50.
        width: channels of the first convolution, a multiple of 32; 64 times BiT's width factor.
        num_classes: width of the head; 0 for no head: the model returns the representation.
        image_size: int or `(height, width)`; `None` for any size.
        image_channels: channels of an image.
        classifier_activation: activation of the head; `None` returns logits.
        preactivation: `True` for BiT, a ResNet-v2; `False` for the ResNet-v1 of the hybrids and of
            `bit.py` in big_vision. The two also differ in padding and epsilons.
        name: name of the model.
        dtype: dtype or policy of the layers, such as `"mixed_bfloat16"`; `None` for the global
            policy. Standardization, GroupNorm statistics and logits are float32 under every policy.

    Example:
    >>> from keras_vit.models.options import ResNetOptions
    >>> ResNetOptions((1, 1), 32).sizes
    {'stages': (1, 1), 'width': 32, 'preactivation': True}
    """

    stages: tuple[int, ...] = _field(SIZE)
    width: int = _field(SIZE, 64)
    num_classes: int = 1000
    image_size: int | tuple[int, int] | None = DEFAULT_IMAGE_SIZE
    image_channels: int = 3
    classifier_activation: str | None = None
    preactivation: bool = _field(SIZE, True)
    name: str = _field(RUNTIME, "resnet")
    dtype: str | None = _field(RUNTIME, None)

    # A ResNet has no patches.
    grid = None
    stride = (1, 1)


def is_resnet(options):
    """Whether options are `ResNetOptions`."""
    return isinstance(options, ResNetOptions)


def resnet_stride(stages):
    """Return the stride of the feature map after these stages, in pixels of the image."""
    return 4 * 2 ** max(len(stages) - 1, 0)


def as_options(kind, arguments, fields):
    """Return options of a kind, made from options and changes, or from constructor arguments."""
    if len(arguments) == 1 and isinstance(arguments[0], Options):
        return arguments[0].replace(**fields)
    check_options(kind.__name__, fields, [field.name for field in dataclasses.fields(kind)])
    return kind(*arguments, **fields)


def options_from_config(config):
    """Return options from a dictionary of `dataclasses.asdict`, which may come from JSON."""
    return (ResNetOptions if "stages" in config else VitOptions)(**config)


def option_differences(options, other, names):
    """Return `{name: (value, other value)}` for those `names` whose values differ."""
    options, other = options.resolved(), other.resolved()
    pairs = {name: (getattr(options, name), getattr(other, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def changed_options(options, row=None):
    """Return the options that differ from the defaults, except number of classes and image size.

    The defaults are those of the variant `row`. Without a variant, all sizes are returned, with the
    default `None`.

    Returns:
        A dictionary from names to pairs of the value and the default.

    Example:
    >>> from keras_vit.models.options import changed_options
    >>> row = keras_vit.list_variants()[0]
    >>> changed_options(row.replace(pooling="gap"), row)
    {'pooling': ('gap', 'token')}
    """
    default = row or type(options)(**options.sizes)
    names = {*options.names(), *options.names("training")} - {"num_classes", "image_size"}
    # The defaults of these follow from other options, such as `class_token` from `pooling`.
    derived = names & {"class_token", "patch_bias", "key_bias"}
    changed = option_differences(options, default, names - derived)
    changed |= option_differences(options, options.replace(**dict.fromkeys(derived)), derived)
    sizes = {} if row else {name: (size, None) for name, size in options.sizes.items()}
    return sizes | dict(sorted(changed.items()))
