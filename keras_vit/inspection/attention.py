"""Attention scores of a model's blocks."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.core.pixels import check_images
from keras_vit.models.inference import for_inference
from keras_vit.models.parts import attention_names, find_blocks


def attention_maps(
    model: keras.Model, images: Any, blocks: Sequence[str] | None = None, batch_size: int = 32
) -> dict[str, np.ndarray]:
    """Return the attention scores between all tokens, in each head of each block.

    The scores come from an explicit softmax, for any model with the blocks of this package: built,
    fine-tuned, reloaded, or composed by hand. The model does not change. The scores of ViT-B/16
    take 22 MB per image; `attention_rollout` and `attention_distance` reduce them batch by batch.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            batches of them.
        blocks: list of names of blocks, such as `["block_11"]`; all by default.
        batch_size: number of images per step.

    Returns:
        A dictionary from names of blocks to float32 arrays `(batch, heads, tokens, tokens)`. The
        last axis, over the tokens that are attended to, sums to 1. The class token and registers
        come first, then the patches, row by row. An axial block has two arrays, `"block_11/rows"`
        and `"block_11/columns"`, which are 0 between patches of different rows or columns.

    Raises:
        ValueError: if the model has no Transformer blocks; or if `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].
        KeyError: if it has no block with such a name.

    Reference:
        Appendix A of the ViT paper (arXiv 2010.11929).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> maps = keras_vit.attention_maps(model, np.zeros((2, 32, 32, 3)))
    >>> maps["block_11"].shape
    (2, 3, 5, 5)
    """
    found = {block.name: block for block in find_blocks(model)}
    chosen = [found[name] for name in (found if blocks is None else blocks)]
    maps = summarise_attention(model, images, lambda s, _: [*s], chosen, batch_size=batch_size)
    return dict(zip(attention_names(chosen), maps, strict=True))


def summarise_attention(model, images, summarise, blocks=None, others=(), batch_size=32, verbose=0):
    """Apply a function to the attention scores of a model's blocks, batch by batch.

    Args:
        model: a model of this package with Transformer blocks.
        images: as in `attention_maps`.
        summarise: function of an iterator over the blocks' scores, tensors
            `(batch, heads, tokens, tokens)`, two for an axial block, and of the list of the inputs
            of `others`; returns a tensor or a list of tensors with one entry per image.
        blocks: list of the blocks; all by default.
        others: other layers of the model whose inputs `summarise` needs.
        batch_size: number of images per step.
        verbose: as in `keras.Model.predict`.

    Returns:
        The results of `summarise` for all images, as arrays.

    Raises:
        ValueError: if the model has no Transformer blocks; or if `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].
    """
    blocks = find_blocks(model) if blocks is None else blocks
    summary = AttentionSummary(model, blocks, others, summarise)
    check_images(images)
    return summary.predict(images, batch_size=batch_size, verbose=verbose)


class AttentionSummary(keras.Model):
    """A model's layers up to the blocks, followed by the function of the blocks' scores.

    The blocks are never called on symbolic tensors, which would add inbound nodes to them.
    """

    def __init__(self, model, blocks, others, summarise):
        super().__init__(name="attention_summary")
        inputs = {layer.name: layer.input for layer in (*blocks, *others)}
        self.tokens = for_inference(keras.Model(model.input, inputs))
        self.blocks = blocks
        self.others = others
        self.summarise = summarise

    def call(self, images):
        tokens = self.tokens(images)
        scores = (
            scores
            for block in self.blocks
            for scores in _as_tuple(block.attention_scores(tokens[block.name]))
        )
        return self.summarise(scores, [tokens[layer.name] for layer in self.others])


def _as_tuple(scores):
    return scores if isinstance(scores, tuple) else (scores,)
