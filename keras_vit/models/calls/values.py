"""Restore the variables of a model after an error on JAX."""

import contextlib

import keras


@contextlib.contextmanager
def keeping_values(model, in_training=False):
    """Restore the variables of a model if `fit`, `evaluate` or `predict` raises an error.

    On JAX, Keras 3.15 takes the values out of the variables during a call, and an error of the data
    or of the first step would leave a model without weights. After an error in a later step they
    are those of the step before.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    optimizer = getattr(model, "optimizer", None) if in_training else None
    if optimizer is not None and not optimizer.built:
        # As Keras would, but before its variables are recorded.
        optimizer.build(model.trainable_variables)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    before = [(variable, variable.value) for variable in variables]
    try:
        yield
    except BaseException:
        if any(value.is_deleted() for _, value in before):
            # A step was computed, and JAX has deleted (donated) its inputs.
            model.jax_state_sync()
        for variable, value in before:
            if not _has_value(variable):
                variable.assign(value)
        raise


def _has_value(variable):
    try:
        return variable.value is not None
    # Keras asks for its initializer, which is gone.
    except TypeError:
        return False
