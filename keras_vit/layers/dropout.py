"""Dropout that can be computed again."""

import keras


class Dropout(keras.layers.Dropout):
    """Keras's Dropout, which can also drop by a seed that was drawn before.

    Call arguments:
        inputs: a tensor.
        training: whether to drop.
        seed: of `draw`, to drop what it stands for; `None` to draw one now.
    """

    def draw(self):
        """The seed of the next call in training, or `None` if nothing is dropped at all."""
        return self.seed_generator.next() if self.rate > 0 else None

    def call(self, inputs, training=False, seed=None):
        if seed is None:
            return super().call(inputs, training=training)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, DrawnSeed(seed))


class DrawnSeed(keras.random.SeedGenerator):
    """Hands a drawn seed to `keras.random`, which takes numbers and generators, but no tensors."""

    def __init__(self, seed):
        # Keras's own initialiser would make a variable, in each call. On torch Keras asks for
        # `_initial_seed`: at `None` it would leave the seed unused.
        self.seed = self._initial_seed = seed

    def next(self, ordered=True):
        """The seed, at each call."""
        return self.seed
