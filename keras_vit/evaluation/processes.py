"""Evaluation by several processes, of which each has a share of the images.

Processes exist with the JAX backend alone. Each evaluates its share on a device of its own, for
which batches of one size are not needed, and what it found is put together at the end.
"""

import numpy as np

from keras_vit.data.processes import process


def logits_function(model):
    """A function from images to logits, arrays both, that a process can call by itself.

    Args:
        model: a built model; among several processes one that each has as a whole, as
            `data_parallel` training and loading leave it.

    Returns:
        A function of `(batch, height, width, 3)`.
    """
    if process()[1] == 1:
        return model.predict_on_batch
    import jax

    # What all processes share can only be computed with by all of them at once; this part of it is
    # on a device of this process.
    variables = [
        [variable.value.addressable_data(0) for variable in group]
        for group in (model.trainable_variables, model.non_trainable_variables)
    ]

    @jax.jit
    def predict(variables, images):
        logits, _ = model.stateless_call(*variables, images, training=False)
        return logits

    return lambda images: predict(variables, images)


def gather(columns):
    """Puts together what all processes have.

    Every process must call it.

    Args:
        columns: dictionary of arrays of one length, of at most 32 bits a number. Processes may have
            different lengths.

    Returns:
        The same dictionary with the entries of all processes, those of the first at first.
    """
    if process()[1] == 1:
        return columns
    from jax.experimental.multihost_utils import process_allgather

    lengths = process_allgather(np.array(len(next(iter(columns.values())))))
    filled = {
        name: np.concatenate([column, np.zeros(lengths.max() - len(column), column.dtype)])
        for name, column in columns.items()
    }
    return {
        name: np.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)])
        for name, rows in process_allgather(filled).items()
    }
