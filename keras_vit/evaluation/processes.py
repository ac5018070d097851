"""Evaluation by several processes, with a share of the images each.

Only the JAX backend has several processes. Each evaluates its share on its own device, so that
batches need not have one size; the results are gathered at the end.
"""

import numpy as np

from keras_vit.data.processes import process
from keras_vit.models.kernels.folding import fold


def logits_function(model):
    """Return a function from images to logits that a process can call by itself.

    Each process must have the whole model, as after `data_parallel` training and after loading.
    """
    if process()[1] == 1:
        return fold(model, casting=True).predict_on_batch
    import jax

    # All processes must compute at once with an array that they share; this part of it is on a
    # device of this process.
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
    """Concatenate the arrays of all processes in their order; each must call this function.

    `columns` is a dictionary of arrays of one length, which may differ between processes, with at
    most 32 bits per number.
    """
    if process()[1] == 1:
        return columns
    from jax.experimental.multihost_utils import process_allgather

    lengths = process_allgather(np.array(len(next(iter(columns.values())))))
    filled = {
        name: np.concatenate(
            [column, np.zeros((lengths.max() - len(column), *column.shape[1:]), column.dtype)]
        )
        for name, column in columns.items()
    }
    return {
        name: np.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)])
        for name, rows in process_allgather(filled).items()
    }
