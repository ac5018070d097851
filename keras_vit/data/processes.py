"""Several processes that work together, each of which reads its share of the data."""

import keras
import numpy as np


def process():
    """Return `(index, count)` of this process among those that work together."""
    if keras.backend.backend() != "jax":
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()


def sum_over_processes(number):
    """Return the sum of an integer over the processes, each of which must call this function."""
    if process()[1] == 1:
        return number
    from jax.experimental.multihost_utils import process_allgather

    return int(process_allgather(np.array(number)).sum())
