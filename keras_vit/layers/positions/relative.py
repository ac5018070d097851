"""Relative position embeddings: an embedding per offset between patches, as a key of attention."""

from keras import ops


def num_offsets(grid_size):
    """Return the number of offsets between two patches in their order, row by row.

    Example:
    >>> from keras_vit.layers.positions.relative import num_offsets
    >>> num_offsets((2, 3))
    11
    """
    rows, columns = grid_size
    return 2 * rows * columns - 1


def check_relative(grid_size, num_queries, num_keys):
    """Raise `ValueError` unless queries and keys are the same tokens, with the patches last."""
    rows, columns = grid_size
    if num_queries != num_keys or (num_keys or 0) < rows * columns:
        raise ValueError(
            "`relative_grid_size` must be the rows and columns of the patches, in attention among "
            f"the same tokens. Received: relative_grid_size={tuple(grid_size)}, "
            f"{num_queries} queries, {num_keys} keys"
        )


def relative_bias(query, embedding):
    """Return the logits of the relative attention, which are added to those of the attention.

    The logit of two patches at the places `p_q` and `p_k` of the sequence of patches is the product
    of the query and the embedding of the offset `p_q - p_k`. Other tokens have no place: the logits
    of a class token and for a class token are 0.

    Args:
        query: scaled queries `(batch, tokens, heads, head_dim)`, the patches last.
        embedding: embeddings `(2 * patches - 1, head_dim)`, in the dtype of `query`. Row `i` is
            that of the offset `patches - 1 - i`.

    Returns:
        A tensor `(batch, heads, tokens, tokens)`.

    Example:
    >>> from keras_vit.layers.positions.relative import relative_bias
    >>> tuple(relative_bias(ops.ones((1, 7, 2, 8)), ops.ones((11, 8))).shape)
    (1, 2, 7, 7)
    """
    _, num_tokens, heads, head_dim = query.shape
    patches = (embedding.shape[0] + 1) // 2
    num_prefix = num_tokens - patches
    rows = ops.reshape(ops.swapaxes(query[:, num_prefix:], 1, 2), (-1, head_dim))
    # One row of zeros, instead of one column of the far larger product.
    keys = ops.transpose(ops.pad(embedding, ((0, 1), (0, 0))))
    logits = ops.reshape(ops.matmul(rows, keys), (-1, heads, patches * 2 * patches))
    # The logit of the patches `q` and `k` is in column `patches - 1 - q + k` of row `q`, which is
    # place `q * (2 * patches - 1) + k + patches - 1` of all: rows that are one column shorter align
    # them ("skewing", section 3.4.1 of Music Transformer, arXiv 1809.04281).
    end = patches - 1 + patches * (2 * patches - 1)
    logits = ops.reshape(logits[:, :, patches - 1 : end], (-1, heads, patches, 2 * patches - 1))
    logits = logits[..., :patches]
    return ops.pad(logits, ((0, 0), (0, 0), (num_prefix, 0), (num_prefix, 0)))
