"""Layers that prepend tokens to a token sequence, and layers that pool it to one vector."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.attention import MultiHeadAttention
from keras_vit.layers.layer import Layer
from keras_vit.layers.mlp import MlpBlock, as_activation
from keras_vit.layers.normalization import LAYER_NORM_EPSILON, layer_norm


class LearnedTokens(Layer):
    """Base class of layers with one variable: tokens that are prepended to a token sequence."""

    num_new = 1

    def call(self, tokens):
        (learned,) = self.weights
        learned = ops.cast(learned, tokens.dtype)
        shape = (ops.shape(tokens)[0], *learned.shape[1:])
        return ops.concatenate([ops.broadcast_to(learned, shape), tokens], 1)

    def compute_output_shape(self, input_shape):
        batch_size, num_tokens, width = input_shape
        return (batch_size, num_tokens and self.num_new + num_tokens, width)


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(LearnedTokens):
    """Prepends a learnable class token to a token sequence.

    Input: `(batch, tokens, width)`. Output: `(batch, 1 + tokens, width)`.

    Reference:
        Section 3.1, equation 1 of the ViT paper (arXiv 2010.11929); initially zero as in
        `vit_jax/models_vit.py`.

    Example:
    >>> tuple(ClassToken()(np.ones((2, 24, 8))).shape)
    (2, 25, 8)
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, input_shape[-1]), initializer="zeros"
        )


@keras.saving.register_keras_serializable("keras_vit")
class RegisterTokens(LearnedTokens):
    """Prepends learnable tokens to a token sequence: registers, or a segmenter's class embeddings.

    Input: `(batch, tokens, width)`. Output: `(batch, num_registers + tokens, width)`.

    Args:
        num_registers: number of tokens.
        stddev: standard deviation of the initial values of the tokens.

    Reference:
        "Vision Transformers Need Registers" (arXiv 2309.16588); `reg_token` in timm.

    Example:
    >>> tuple(RegisterTokens(4)(np.ones((2, 24, 8))).shape)
    (2, 28, 8)
    """

    def __init__(self, num_registers: int, stddev: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stddev = stddev
        self.num_new = self.num_registers = num_registers

    def build(self, input_shape):
        self.tokens = self.add_weight(
            name="tokens",
            shape=(1, self.num_registers, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )


@keras.saving.register_keras_serializable("keras_vit")
class ClassTokenPooling(Layer):
    """Returns the class token, which is the first token, or several first tokens concatenated.

    Input: `(batch, tokens, width)`. Output: `(batch, num_tokens * width)`.

    Args:
        num_tokens: number of tokens to return: 2 for DeiT's class token and distillation token.

    Reference:
        Section 3.1, equation 4 of the ViT paper (arXiv 2010.11929).

    Example:
    >>> tuple(ClassTokenPooling()(np.ones((2, 25, 8))).shape)
    (2, 8)
    """

    def __init__(self, num_tokens: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_tokens = num_tokens

    def call(self, tokens):
        if self.num_tokens == 1:
            return tokens[:, 0]
        return ops.reshape(tokens[:, : self.num_tokens], (-1, self.num_tokens * tokens.shape[-1]))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_tokens * input_shape[2])


@keras.saving.register_keras_serializable("keras_vit")
class ClassTokenAndMeanPooling(Layer):
    """Returns the class token and the mean of the patch tokens, concatenated.

    Input: `(batch, tokens, width)`. Output: `(batch, 2 * width)`.

    Args:
        num_prefix_tokens: number of tokens before the patches: class token and registers.

    Reference:
        The linear classifiers of DINOv2 (arXiv 2304.07193); `Dinov2ForImageClassification` in
        transformers.

    Example:
    >>> tuple(ClassTokenAndMeanPooling(num_prefix_tokens=1)(np.ones((2, 25, 8))).shape)
    (2, 16)
    """

    def __init__(self, num_prefix_tokens: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_prefix_tokens = num_prefix_tokens

    def call(self, tokens):
        mean = ops.mean(tokens[:, self.num_prefix_tokens :], axis=1)
        return ops.concatenate([tokens[:, 0], mean], axis=-1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 2 * input_shape[2])


@keras.saving.register_keras_serializable("keras_vit")
class MultiHeadAttentionPooling(Layer):
    """Pools tokens by attention from a learnable probe, followed by a residual MLP (MAP head).

    Input: `(batch, tokens, width)`. Output: `(batch, width)`. With `return_attention_scores=True`,
    the layer also returns the scores `(batch, heads, 1, tokens)` in float32.

    Args:
        num_heads: number of attention heads, a divisor of the width.
        mlp_dim: width of the MLP's hidden layer.
        activation: `"gelu_tanh"` (the original's) or `"gelu"` (erf; weights trained in PyTorch).
        epsilon: epsilon of the LayerNorm.
        attention_path: see `MultiHeadAttention`.

    Call arguments:
        tokens: the token sequence.
        return_attention_scores: whether to return the scores as well as the output.

    Raises:
        ValueError: if the heads do not divide the width, or `activation` or `attention_path` is
            unknown.

    Reference:
        `MAPHead` in `big_vision/models/vit.py`; Scaling Vision Transformers (arXiv 2106.04560).

    Example:
    >>> tokens = np.ones((2, 25, 8), "float32")
    >>> tuple(MultiHeadAttentionPooling(num_heads=2, mlp_dim=32)(tokens).shape)
    (2, 8)
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        activation: str = "gelu_tanh",
        epsilon: float = LAYER_NORM_EPSILON,
        attention_path: str = "fused",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.epsilon = epsilon
        options = self.sublayer_options()
        self.attention_path = attention_path
        self.attention = MultiHeadAttention(
            num_heads, attention_path=attention_path, name="attention", **options
        )
        self.layer_norm = layer_norm(name="layer_norm", epsilon=epsilon, **options)
        self.mlp = MlpBlock(mlp_dim, activation, name="mlp", **options)

    def build(self, input_shape):
        batch_size, _, width = input_shape
        self.probe = self.add_weight(
            name="probe", shape=(1, 1, width), initializer="glorot_uniform"
        )
        self.attention.build((batch_size, 1, width), input_shape)
        self.layer_norm.build((batch_size, 1, width))
        self.mlp.build((batch_size, 1, width))

    def call(self, tokens, return_attention_scores=False):
        batch_size, width = ops.shape(tokens)[0], tokens.shape[-1]
        probe = ops.broadcast_to(ops.cast(self.probe, tokens.dtype), (batch_size, 1, width))
        pooled = self.attention(probe, tokens, return_attention_scores=return_attention_scores)
        pooled, scores = pooled if return_attention_scores else (pooled, None)
        # No residual around the attention: the probe is the same for every image.
        pooled = (pooled + self.mlp(self.layer_norm(pooled)))[:, 0]
        return (pooled, scores) if return_attention_scores else pooled

    def compute_output_spec(self, tokens, return_attention_scores=False):
        batch_size, num_tokens, width = tokens.shape
        pooled = keras.KerasTensor((batch_size, width), dtype=self.compute_dtype)
        if not return_attention_scores:
            return pooled
        scores_shape = (batch_size, self.num_heads, 1, num_tokens)
        return pooled, keras.KerasTensor(scores_shape, dtype="float32")


@keras.saving.register_keras_serializable("keras_vit")
class DistilledHead(Layer):
    """Classifies the class token and the distillation token linearly, and returns the mean.

    Input: `(batch, 2 * width)`, the two tokens concatenated. Output: `(batch, units)`. The kernels
    of the two classifiers, `class_token` and `distillation_token`, are zero at the start.

    Args:
        units: number of classes.
        activation: activation of the mean; `None` returns logits.

    Reference:
        Section 4 of DeiT (arXiv 2012.12877). The paper adds the softmaxes. The code of the paper,
        timm and transformers average the logits.

    Example:
    >>> from keras_vit.layers import DistilledHead
    >>> tuple(DistilledHead(units=3)(np.ones((2, 16))).shape)
    (2, 3)
    """

    def __init__(self, units: int, activation: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.activation = as_activation(activation)
        self.class_token = self._classifier("class_token")
        self.distillation_token = self._classifier("distillation_token")

    def _classifier(self, name):
        return keras.layers.Dense(
            self.units, kernel_initializer="zeros", name=name, **self.sublayer_options()
        )

    def build(self, input_shape):
        width = input_shape[-1] // 2
        self.class_token.build((*input_shape[:-1], width))
        self.distillation_token.build((*input_shape[:-1], width))

    def call(self, tokens):
        return self.activation(sum(self.both(tokens)) / 2)

    def both(self, tokens):
        """Return the logits of the class token and the logits of the distillation token."""
        class_token, distillation_token = ops.split(tokens, 2, axis=-1)
        return self.class_token(class_token), self.distillation_token(distillation_token)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        name = self.activation.__name__
        return {**super().get_config(), "activation": None if name == "linear" else name}
