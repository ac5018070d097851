"""The variables of a model and its optimizer around `fit`, `evaluate` and `predict`."""

import contextlib

import keras


@contextlib.contextmanager
def keeping_values(model, in_training=False):
    """Restore the variables of a model if `fit`, `evaluate` or `predict` raises an error.

    On JAX, Keras 3.15 takes the values out of the variables during a call, and an error of the data
    or of the first step would leave a model without weights. After an error in a later step they
    are those of the step before. With `in_training`, the optimizer is built first.
    """
    optimizer = getattr(model, "optimizer", None) if in_training else None
    if optimizer is not None and not optimizer.built:
        _build(optimizer, model)
    if keras.backend.backend() != "jax":
        yield
        return
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


def _build(optimizer, model):
    """Create the variables of an optimizer before the first step.

    Otherwise TensorFlow traces that step twice, and on JAX `keeping_values` cannot restore them.
    """
    strategy = getattr(model, "distribute_strategy", None)
    with strategy.scope() if strategy else contextlib.nullcontext():
        optimizer.build(model.trainable_variables)


def _has_value(variable):
    try:
        return variable.value is not None
    # Keras asks for its initializer, which is gone.
    except TypeError:
        return False
