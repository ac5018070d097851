"""Several processes that work together, each of which reads its share of the data."""

import keras


def process():
    """Return `(index, count)` of this process among those that work together."""
    if keras.backend.backend() != "jax":
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()
