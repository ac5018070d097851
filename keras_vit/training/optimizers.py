"""The optimizers of the paper."""

import re

import keras
from keras import ops

from keras_vit.training.distribution import sum_over_replicas
from keras_vit.training.schedules import learning_rate_schedule

# What has the whole learning rate under layer-wise decay.
BEHIND_BLOCKS = ("encoder_norm/", "pooling/", "fc_norm/", "pre_logits/", "head/", "patch_head/")


class PaperOptimizer(keras.optimizers.Optimizer):
    """What the paper's optimizers share: the gradients' norm, decay of kernels, accumulation.

    Keras has most of this too, but clips what each replica has before it sums up, cannot accumulate
    under `MirroredStrategy`, and counts the steps of a schedule in batches then.

    Args:
        learning_rate: float or `keras.optimizers.schedules.LearningRateSchedule` of the updates.
        weight_decay: decoupled, of kernels alone; times the learning rate.
        clip_norm: global norm at which gradients are clipped; `None` for not.
        layer_decay: each block has the learning rate of the block behind it times this.
        accumulation_steps: batches whose mean gradient is one update.
        average_momentum: of an average of the weights over the updates (Polyak); `None` for none.
        name: of the optimizer.

    Raises:
        ValueError: if one is out of range; and when it is built with `layer_decay`, if the
            variables are of no Transformer blocks.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay=0.0,
        clip_norm=None,
        layer_decay=1.0,
        accumulation_steps=1,
        average_momentum=None,
        name=None,
    ):
        rules = {
            "weight_decay": (weight_decay >= 0, "not be negative"),
            "clip_norm": (clip_norm is None or clip_norm > 0, "be positive"),
            "layer_decay": (layer_decay > 0, "be positive"),
            "accumulation_steps": (accumulation_steps >= 1, "be positive"),
            "average_momentum": (0 <= (average_momentum or 0) < 1, "be at least 0, less than 1"),
        }
        for argument, (is_right, rule) in rules.items():
            if not is_right:
                value = locals()[argument]
                raise ValueError(f"`{argument}` must {rule}. Received: {argument}={value}")
        super().__init__(learning_rate, name=name)
        self.schedule = learning_rate
        self.kernel_decay = weight_decay
        self.clip_norm = clip_norm
        self.layer_decay = layer_decay
        self.accumulation_steps = accumulation_steps
        self.average_momentum = average_momentum

    def build(self, variables):
        super().build(variables)
        # Set in a replica, where all of them have the same.
        self.gradient_norm = self.add_variable(
            (), dtype="float32", aggregation="only_first_replica", name="gradient_norm"
        )
        self.factors = layer_factors(variables, self.layer_decay)
        self.decays = [self.kernel_decay * (v.name == "kernel") for v in variables]
        if self.accumulation_steps > 1:
            self.sums = self.add_optimizer_variables(variables, "sum")
        if self.average_momentum is not None:
            self.averages = self.add_optimizer_variables(variables, "average")

    @property
    def updates(self):
        """How often the weights have been updated."""
        return ops.floor_divide(self.iterations, self.accumulation_steps)

    @property
    def learning_rate(self):
        """Of the next update."""
        is_schedule = isinstance(self.schedule, keras.optimizers.schedules.LearningRateSchedule)
        return self.schedule(self.updates) if is_schedule else super().learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        keras.optimizers.Optimizer.learning_rate.fset(self, value)
        self.schedule = value

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(list(trainable_variables))
        variables = trainable_variables or self._trainable_variables
        pairs = zip(grads, variables, strict=True)
        # As in Keras, what has no gradient stays as it is.
        grads, variables = zip(*[pair for pair in pairs if pair[0] is not None], strict=True)
        grads, num_replicas = sum_over_replicas(list(grads))
        if self.accumulation_steps > 1:
            sums = [self.sums[self._get_variable_index(variable)] for variable in variables]
            grads = [
                total.value + ops.cast(grad, total.dtype) / self.accumulation_steps
                for total, grad in zip(sums, grads, strict=True)
            ]
        squares = [ops.sum(ops.square(ops.cast(grad, "float32"))) for grad in grads]
        self.gradient_norm.assign(ops.sqrt(sum(squares)))
        # Keras sums over replicas, too.
        super().apply([grad / num_replicas for grad in grads], variables)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        gradient = ops.cast(gradient, dtype)
        if self.accumulation_steps > 1:
            self._set(self.sums[index], ops.zeros_like(gradient), otherwise=gradient)
            learning_rate = ops.where(self._is_update(), learning_rate, 0.0)
        if self.clip_norm is not None:
            scale = self.clip_norm * ops.minimum(1 / self.gradient_norm, 1 / self.clip_norm)
            gradient = gradient * ops.cast(scale, dtype)
        direction = self.direction(gradient, index)
        if self.decays[index]:
            direction = direction + self.decays[index] * variable
        rate = ops.cast(learning_rate * self.factors[index], dtype)
        self.assign_sub(variable, rate * direction)
        if self.average_momentum is not None:
            self._add_to_average(self.averages[index], variable)

    def direction(self, gradient, index):
        """Where the variable of an index goes, before decay and learning rate."""
        raise NotImplementedError

    def _is_update(self):
        return ops.equal((self.iterations + 1) % self.accumulation_steps, 0)

    def _set(self, variable, value, otherwise=None):
        """Gives a variable a value if this batch is the last of an update.

        Without a condition around it, under which replicas cannot communicate.
        """
        if self.accumulation_steps > 1:
            otherwise = ops.convert_to_tensor(variable) if otherwise is None else otherwise
            value = ops.where(self._is_update(), value, otherwise)
        self.assign(variable, value)

    def _add_to_average(self, average, variable):
        momentum = ops.where(ops.equal(self.updates, 0), 0.0, self.average_momentum)
        momentum = ops.cast(momentum, variable.dtype)
        self._set(average, momentum * average + (1 - momentum) * variable)

    def get_config(self):
        return {
            "learning_rate": super().get_config()["learning_rate"],
            "weight_decay": self.kernel_decay,
            "clip_norm": self.clip_norm,
            "layer_decay": self.layer_decay,
            "accumulation_steps": self.accumulation_steps,
            "average_momentum": self.average_momentum,
            "name": self.name,
        }


@keras.saving.register_keras_serializable("keras_vit")
class SGD(PaperOptimizer):
    """Gradient descent with optax's momentum.

    optax sums up gradients and multiplies the sum with the learning rate of the step; Keras sums up
    gradients that have been multiplied with the learning rates of their steps. They differ while
    the learning rate changes, most of all in the warm-up.

    Args:
        learning_rate: as `PaperOptimizer`.
        momentum: what is left of the sum after a step.
        **arguments: as `PaperOptimizer`.

    Reference:
        `optax.sgd`, the optimizer of vit_jax.

    Example:
    >>> SGD(learning_rate=0.03, clip_norm=1.0).momentum
    0.9
    """

    def __init__(self, learning_rate, momentum=0.9, **arguments):
        super().__init__(learning_rate, **arguments)
        self.momentum = momentum

    def build(self, variables):
        super().build(variables)
        self.traces = self.add_optimizer_variables(variables, "trace")

    def direction(self, gradient, index):
        trace = gradient + self.momentum * self.traces[index]
        self._set(self.traces[index], trace)
        return trace

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


@keras.saving.register_keras_serializable("keras_vit")
class AdamW(PaperOptimizer):
    """Adam with optax's epsilon, and decoupled weight decay.

    Both keep running means of the gradients and of their squares, which start at 0. optax adds
    epsilon to the root of the mean of squares after it has been corrected for that, Keras before,
    where in the first steps epsilon is as good as 30 times greater.

    Args:
        learning_rate: as `PaperOptimizer`.
        beta_1: what is left of the mean of the gradients after a step.
        beta_2: what is left of the mean of their squares.
        epsilon: what is added to the corrected root.
        **arguments: as `PaperOptimizer`.

    Reference:
        `optax.scale_by_adam`, the optimizer of big_vision.

    Example:
    >>> AdamW(learning_rate=1e-3, weight_decay=0.1).epsilon
    1e-08
    """

    def __init__(self, learning_rate, beta_1=0.9, beta_2=0.999, epsilon=1e-8, **arguments):
        super().__init__(learning_rate, **arguments)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables):
        super().build(variables)
        self.means = self.add_optimizer_variables(variables, "mean")
        self.squares = self.add_optimizer_variables(variables, "square")

    def direction(self, gradient, index):
        dtype = gradient.dtype
        # In half precision 0.999 is 1, and epsilon 0.
        gradient, mean, square = (
            ops.cast(value, "float32")
            for value in (gradient, self.means[index], self.squares[index])
        )
        mean = self.beta_1 * mean + (1 - self.beta_1) * gradient
        square = self.beta_2 * square + (1 - self.beta_2) * ops.square(gradient)
        self._set(self.means[index], ops.cast(mean, dtype))
        self._set(self.squares[index], ops.cast(square, dtype))
        step = ops.cast(self.updates + 1, "float32")
        mean = mean / (1 - ops.power(self.beta_1, step))
        square = square / (1 - ops.power(self.beta_2, step))
        return ops.cast(mean / (ops.sqrt(square) + self.epsilon), dtype)

    def get_config(self):
        config = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return {**super().get_config(), **config}


def make_optimizer(recipe, model, total_steps):
    """The optimizer of a recipe.

    Args:
        recipe: a `Recipe`.
        model: the built model that it will train.
        total_steps: updates of the run.

    Returns:
        A `keras.optimizers.Optimizer`.

    Raises:
        ValueError: if the model computes in float16 and gradients are accumulated.

    Reference:
        Tables 3 and 4 of the ViT paper (arXiv 2010.11929).
    """
    learning_rate = learning_rate_schedule(
        recipe.decay, recipe.learning_rate, total_steps, recipe.warmup_steps, recipe.boundaries
    )
    optimizer = {"sgd": SGD, "adamw": AdamW}[recipe.optimizer](
        learning_rate,
        weight_decay=recipe.weight_decay,
        clip_norm=recipe.clip_norm,
        layer_decay=recipe.layer_decay,
        accumulation_steps=recipe.accumulation_steps,
        average_momentum=recipe.average_momentum,
    )
    # Keras scales the loss by itself under the global policy alone.
    if any(layer.compute_dtype == "float16" for layer in model.layers):
        if recipe.accumulation_steps > 1:
            # A part whose gradients overflow is left out, which would shift all later ones.
            raise ValueError(
                "`accumulation_steps` do not go with float16; `mixed_bfloat16` does with both. "
                f"Received: accumulation_steps={recipe.accumulation_steps}"
            )
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def inner_optimizer(model):
    """The paper's optimizer of a compiled model; in float16 it stands behind the loss's scaling."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def layer_factors(variables, decay):
    """What the learning rate of each variable is multiplied with under layer-wise decay.

    The head, the pooling and the last LayerNorm have the whole learning rate, the last block that
    times `decay`, and so on down to the embedding of the patches (and the ResNet of a hybrid).

    Args:
        variables: `keras.Variable`s of a model of this package.
        decay: float.

    Returns:
        A list of floats.

    Reference:
        BEiT (arXiv 2106.08254), `get_num_layer_for_vit` in its `optim_factory.py`.

    Example:
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=2, num_heads=2, mlp_dim=8, image_size=8)
    >>> factors = layer_factors(model.trainable_variables, decay=0.5)
    >>> factors[0], factors[-1]
    (0.125, 1.0)
    """
    blocks = [re.match(r"block_(\d+)/", variable.path) for variable in variables]
    depth = max((int(block[1]) + 1 for block in blocks if block), default=0)
    if decay != 1 and not depth:
        raise ValueError(
            "`layer_decay` is for the Transformer blocks of a model of this package. "
            f"Received: layer_decay={decay} and a model without any"
        )
    factors = []
    for variable, block in zip(variables, blocks, strict=True):
        if block:
            layer = int(block[1]) + 1
        else:
            layer = depth + 1 if variable.path.startswith(BEHIND_BLOCKS) else 0
        factors.append(decay ** (depth + 1 - layer))
    return factors
