"""Dropout that can be repeated with the same seed."""

import keras


class Dropout(keras.layers.Dropout):
    """Keras's Dropout, which can also take a seed that was drawn before.

    Call arguments:
        inputs: a tensor.
        training: whether to apply dropout.
        seed: seed from `draw`; `None` to draw one now.
    """

    def draw(self):
        """Return a new seed, or `None` if the rate is 0."""
        return self.seed_generator.next() if self.rate > 0 else None

    def call(self, inputs, training=False, seed=None):
        if seed is None:
            return super().call(inputs, training=training)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, DrawnSeed(seed))


class DrawnSeed(keras.random.SeedGenerator):
    """Generator that returns one seed: `keras.random` takes generators, but no tensors."""

    def __init__(self, seed):
        # Keras's own constructor would create a variable in each call. On torch Keras reads
        # `_initial_seed`, and ignores the seed if that is `None`.
        self.seed = self._initial_seed = seed

    def next(self, ordered=True):
        """Return the same seed in each call."""
        return self.seed
