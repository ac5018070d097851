"""The optimizers of the paper."""

import logging
import math
from typing import Any

import keras
from keras import ops

from keras_vit.core.arguments import check_rate
from keras_vit.models.model import computes_in_float16
from keras_vit.training.paper_optimizer import PaperOptimizer, PaperUpdates
from keras_vit.training.recipes.checks import PAPER_OPTIMIZERS, check_accumulation
from keras_vit.training.recipes.recipe import KERAS_OPTIMIZERS, Recipe
from keras_vit.training.schedules import learning_rate_schedule


@keras.saving.register_keras_serializable("keras_vit")
class SGD(PaperOptimizer):
    """Gradient descent with optax's momentum.

    optax accumulates gradients and multiplies the sum by the learning rate of the step. Keras
    accumulates gradients already multiplied by the learning rates of their steps. The two differ
    while the learning rate changes, most of all in the warm-up.

    Reference:
        `optax.sgd`, the optimizer of vit_jax.
    """

    def __init__(self, learning_rate: Any, momentum: float = 0.9, **arguments: Any) -> None:
        check_rate("momentum", momentum)
        super().__init__(learning_rate, **arguments)
        self.momentum = momentum

    def build(self, variables):
        super().build(variables)
        self.traces = self.add_momentum(variables, "trace")

    def direction(self, gradient, index):
        trace = ops.cast(self.traces[index], gradient.dtype)
        trace = gradient + self.decay_of(self.momentum) * trace
        self._set(self.traces[index], trace)
        return trace


@keras.saving.register_keras_serializable("keras_vit")
class AdamW(PaperOptimizer):
    """Adam with optax's epsilon, and decoupled weight decay.

    optax adds epsilon to the root of the second moment after bias correction. Keras adds it before,
    where epsilon has up to 30 times the effect in the first steps.

    Reference:
        `optax.scale_by_adam`, the optimizer of big_vision.
    """

    def __init__(
        self,
        learning_rate: Any,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        **arguments: Any,
    ) -> None:
        check_rate("beta_1", beta_1)
        check_rate("beta_2", beta_2)
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"`epsilon` must not be negative. Received: epsilon={epsilon}")
        super().__init__(learning_rate, **arguments)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables):
        super().build(variables)
        self.means = self.add_momentum(variables, "mean")
        self.squares = self.add_optimizer_variables(variables, "square")

    def direction(self, gradient, index):
        dtype = gradient.dtype
        # In half precision 0.999 is 1, and epsilon 0.
        gradient, mean, square = (
            ops.cast(value, "float32")
            for value in (gradient, self.means[index], self.squares[index])
        )
        mean = self.decay_of(self.beta_1) * mean + (1 - self.beta_1) * gradient
        square = self.beta_2 * square + (1 - self.beta_2) * ops.square(gradient)
        self._set(self.means[index], mean)
        self._set(self.squares[index], ops.cast(square, dtype))
        step = ops.cast(self.updates + 1, "float32")
        mean = mean / (1 - ops.power(self.beta_1, step))
        square = square / (1 - ops.power(self.beta_2, step))
        return ops.cast(mean / (ops.sqrt(square) + self.epsilon), dtype)


def make_optimizer(
    recipe: Recipe, model: keras.Model, total_steps: int
) -> keras.optimizers.Optimizer:
    """Make the optimizer of a recipe for the updates of a run, and for a built model.

    Reference:
        Tables 3 and 4 of the ViT paper (arXiv 2010.11929).
    """
    start = (recipe.ema_momentum or 0.0) ** total_steps
    if start > 0.5:
        logging.getLogger("keras_vit").warning(
            "after %d steps the averaged weights are still %.0f %% those of the first step; choose "
            "a smaller `ema_momentum` than %s",
            *(total_steps, 100 * start, recipe.ema_momentum),
        )
    learning_rate = learning_rate_schedule(
        recipe.decay, recipe.learning_rate, total_steps, recipe.warmup_steps, recipe.boundaries
    )
    is_paper = recipe.optimizer in PAPER_OPTIMIZERS
    optimizer = _find_optimizer(recipe.optimizer)(
        learning_rate,
        **({"momentum_dtype": recipe.momentum_dtype} if is_paper else {}),
        weight_decay=recipe.weight_decay,
        clip_norm=recipe.clip_norm,
        layer_decay=recipe.layer_decay,
        accumulation_steps=recipe.accumulation_steps,
        ema_momentum=recipe.ema_momentum,
        unfreeze_steps=recipe.unfreeze_steps,
    )
    # A task's model, such as a `Distiller`, has the global policy, by which Keras scales the loss.
    if computes_in_float16(model):
        check_accumulation(recipe, "float16")
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _find_optimizer(name):
    """Return the optimizer class of a recipe: the paper's, or Keras's with the paper's updates."""
    if name not in KERAS_OPTIMIZERS:
        return {"sgd": SGD, "adamw": AdamW}[name]
    classes = {kind.lower(): getattr(keras.optimizers, kind) for kind in dir(keras.optimizers)}
    if name not in classes:
        raise ValueError(
            "`optimizer` must be one that this version of Keras has. "
            f"Received: optimizer={name!r} with Keras {keras.__version__}"
        )
    return type(classes[name].__name__, (PaperUpdates, classes[name]), {})


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
    """Return the paper's optimizer of a compiled model, which float16 wraps in loss scaling."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)
