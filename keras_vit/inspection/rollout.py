"""Attention rollout: the patches that contribute to the output."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.inspection.attention import summarise_attention
from keras_vit.models.parts import find_attention_pooling, has_class_output, token_grid


def attention_rollout(model: keras.Model, images: Any, batch_size: int = 32) -> np.ndarray:
    """Return how much each patch contributes to the output by the attention of all blocks.

    The scores of a block are averaged over its heads; the identity is added for the residual
    connection; rows are divided by their sums; and the blocks' matrices are multiplied. The result
    is the row of the class token, also of a model with a distillation token and for
    `pooling="token_gap"`; for `pooling="gap"` the mean of the patches' rows, and for
    `pooling="map"` their mean weighted by the attention of the probe. An axial block has two
    matrices, each with a residual connection.

    Args:
        model: a model of this package with Transformer blocks.
        images: array `(batch, height, width, channels)` in [-1, 1], or a `tf.data.Dataset` of
            batches of them.
        batch_size: number of images per step.

    Returns:
        A float32 array `(batch, rows, columns)` of the patches' shares. The shares of the class
        token and registers are the rest to a sum of 1.

    Raises:
        ValueError: if the model has no Transformer blocks; or if `images` is empty, does not have
            the model's input shape, or is not scaled to [-1, 1].

    Reference:
        Section 4.5 and appendix D.8 of the ViT paper (arXiv 2010.11929); Quantifying Attention Flow
        in Transformers (arXiv 2005.00928).

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=10, image_size=32)
    >>> keras_vit.attention_rollout(model, np.zeros((2, 32, 32, 3))).shape
    (2, 2, 2)
    """
    grid = token_grid(model, images)
    probes = find_attention_pooling(model)

    def roll_out(scores, inputs):
        steps = map(_with_residual, scores)
        joint = functools.reduce(lambda joint, step: ops.matmul(step, joint), steps)
        return _output_row(model, joint, probes, inputs, grid)

    return summarise_attention(model, images, roll_out, others=probes, batch_size=batch_size)


def _with_residual(scores):
    """Return the mean over heads plus the identity, with rows that sum to 1."""
    matrix = ops.mean(scores, axis=1)
    matrix = matrix + ops.eye(matrix.shape[-1], dtype=matrix.dtype)
    return matrix / ops.sum(matrix, axis=-1, keepdims=True)


def _output_row(model, joint, probes, inputs, grid):
    """Return the share of each patch in the output token, `(batch, rows, columns)`."""
    num_patches = grid[0] * grid[1]
    from_patches = joint[:, :, -num_patches:]
    if probes:
        scores = probes[0](inputs[0], return_attention_scores=True)[1]
        # The probe attends to the patches only.
        row = ops.matmul(ops.mean(scores, axis=1), from_patches[:, -num_patches:])[:, 0]
    elif has_class_output(model):
        row = from_patches[:, 0]
    else:
        row = ops.mean(from_patches[:, -num_patches:], axis=1)
    return ops.reshape(row, (-1, *grid))
