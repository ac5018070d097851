"""Several processes that work together, of which each reads its share."""

import keras


def process():
    """`(index, count)` of this process among those that have been joined."""
    if keras.backend.backend() != "jax":
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()
