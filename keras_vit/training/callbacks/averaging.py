"""Exponential moving averages (EMA) of the weights, in place of the weights."""

import contextlib

import keras

from keras_vit.training.distribution import to_numpy
from keras_vit.training.optimizers import inner_optimizer


@contextlib.contextmanager
def averaged_weights(model):
    """Assign the averages of its weights to a model inside a `with`, if its optimizer has them.

    `keras.callbacks.SwapEMAWeights` swaps by adding and subtracting under TensorFlow, which changes
    the last digits of the weights.
    """
    optimizer = inner_optimizer(model)
    if getattr(optimizer, "averages", None) is None:
        yield
        return
    kept = [to_numpy(variable) for variable in model.trainable_variables]
    assign_averages(model)
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, kept, strict=True):
            variable.assign(value)


def assign_averages(model):
    """Assign the averages of its weights to a model, if its optimizer has them."""
    optimizer = inner_optimizer(model)
    if getattr(optimizer, "averages", None) is None:
        return
    for variable, average in zip(model.trainable_variables, optimizer.averages, strict=True):
        # A copy: JAX donates a variable's buffer to the training step.
        variable.assign(to_numpy(average))


class EvaluateAverages(keras.callbacks.Callback):
    """Evaluate the averages of the weights, if the optimizer has them."""

    def on_test_begin(self, logs=None):
        self._averaged = contextlib.ExitStack()
        self._averaged.enter_context(averaged_weights(self.model))

    def on_test_end(self, logs=None):
        self._averaged.close()
