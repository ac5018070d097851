"""The optimizers of the paper."""

import keras
from keras import ops

from keras_vit.training.schedules import learning_rate_schedule


class _GradientNorm:
    """Keeps the global norm of the gradients, before they are clipped, in `gradient_norm`."""

    def build(self, variables):
        super().build(variables)
        self.gradient_norm = self.add_variable(
            (), dtype="float32", aggregation="mean", name="gradient_norm"
        )

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(trainable_variables)
        squares = [ops.sum(ops.square(ops.cast(grad, "float32"))) for grad in grads]
        self.gradient_norm.assign(ops.sqrt(sum(squares)))
        return super().apply(grads, trainable_variables)


@keras.saving.register_keras_serializable("keras_vit")
class SGD(_GradientNorm, keras.optimizers.SGD):
    """Keras's SGD with optax's momentum, and with the norm of the gradients.

    optax sums up gradients and multiplies the sum with the learning rate of the step; Keras sums up
    gradients that have been multiplied with the learning rates of their steps. They differ while
    the learning rate changes, most of all in the warm-up.

    Args:
        momentum: what is left of the sum after a step.
        **arguments: as of `keras.optimizers.SGD`, but for `nesterov`.

    Reference:
        `optax.sgd`, the optimizer of vit_jax.

    Example:
    >>> SGD(learning_rate=0.03, momentum=0.9, global_clipnorm=1.0).momentum
    0.9
    """

    def __init__(self, *, momentum=0.9, **arguments):
        super().__init__(momentum=momentum, **arguments)

    def update_step(self, gradient, variable, learning_rate):
        trace = self.momentums[self._get_variable_index(variable)]
        gradient = ops.cast(gradient, variable.dtype)
        self.assign(trace, gradient + ops.cast(self.momentum, variable.dtype) * trace)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * trace)


@keras.saving.register_keras_serializable("keras_vit")
class AdamW(_GradientNorm, keras.optimizers.AdamW):
    """Keras's AdamW with optax's epsilon, and with the norm of the gradients.

    Both keep running means of the gradients and of their squares, which start at 0. optax adds
    epsilon to the root of the mean of squares after it has been corrected for that, Keras before,
    where in the first steps epsilon is as good as 30 times greater.

    Args:
        epsilon: what is added to the corrected root.
        **arguments: as of `keras.optimizers.AdamW`.

    Reference:
        `optax.scale_by_adam`, the optimizer of big_vision.

    Example:
    >>> AdamW(learning_rate=1e-3, weight_decay=0.1).get_config()["epsilon"]
    1e-08
    """

    def __init__(self, *, epsilon=1e-8, **arguments):
        super().__init__(epsilon=epsilon, **arguments)

    @property
    def epsilon(self):
        """What Keras adds to the uncorrected root in this step."""
        step = ops.cast(self.iterations + 1, "float32")
        return self.corrected_epsilon * ops.sqrt(1.0 - ops.power(self.beta_2, step))

    @epsilon.setter
    def epsilon(self, value):
        self.corrected_epsilon = value

    def get_config(self):
        return {**super().get_config(), "epsilon": self.corrected_epsilon}


class LogGradientNorm(keras.callbacks.Callback):
    """Adds the norm of the last step's gradients, before they are clipped, to an epoch's logs."""

    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        # In float16 it stands behind the scaling of the loss.
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        logs["gradient_norm"] = float(ops.convert_to_numpy(optimizer.gradient_norm))


def make_optimizer(recipe, model, total_steps):
    """The optimizer of a recipe.

    Args:
        recipe: a `Recipe`.
        model: the built model that it will train.
        total_steps: steps of the run.

    Returns:
        A `keras.optimizers.Optimizer`.

    Reference:
        Tables 3 and 4 of the ViT paper (arXiv 2010.11929).
    """
    learning_rate = learning_rate_schedule(
        recipe.decay, recipe.learning_rate, total_steps, recipe.warmup_steps, recipe.boundaries
    )
    shared = {"learning_rate": learning_rate, "global_clipnorm": recipe.clip_norm}
    if recipe.optimizer == "sgd":
        optimizer = SGD(momentum=0.9, weight_decay=recipe.weight_decay or None, **shared)
    else:
        optimizer = AdamW(weight_decay=recipe.weight_decay, **shared)
    if recipe.weight_decay:
        optimizer.exclude_from_weight_decay(var_list=not_kernels(model))
    # Keras scales the loss by itself under the global policy alone.
    if any(layer.compute_dtype == "float16" for layer in model.layers):
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def not_kernels(model):
    """The variables that no weight decay touches: all but kernels, as in big_vision."""
    return [variable for variable in model.trainable_variables if variable.name != "kernel"]
