"""Updates of the recipes: clipping, decay of kernels, layer-wise rates, accumulation, averages."""

import math
import re

import keras
import ml_dtypes
from keras import ops

from keras_vit.core.arguments import (
    check_choice,
    check_rate,
    constructor_arguments,
    is_integer,
)
from keras_vit.training.distribution import sum_over_replicas
from keras_vit.training.recipes.checks import MOMENTUM_DTYPES

# Layers before the blocks. All others are of a head: layer-wise decay leaves them at the full
# learning rate.
BEFORE_BLOCKS = (
    *("root_", "stage_", "patch_embedding/", "corrupt_patches/", "register_tokens/"),
    *("distillation_token/", "class_token/", "position_embedding/", "pre_norm/"),
)

# Names of the variables with weight decay: kernels, and the matrices of LoRA.
DECAYED = ("kernel", "lora_kernel_a", "lora_kernel_b")


class PaperUpdates:
    """Mixin for optimizers: clipping, decay of kernels, layer-wise rates, accumulation, averages.

    Keras has most of this too. But it clips each replica's gradients before it sums them, cannot
    accumulate under `MirroredStrategy`, and then counts the steps of a schedule in batches.

    Args:
        learning_rate: float or `keras.optimizers.schedules.LearningRateSchedule` of the updates.
        weight_decay: decoupled weight decay of kernels; it is multiplied by the learning rate.
        clip_norm: global norm at which gradients are clipped; `None` for no clipping.
        layer_decay: ratio of a block's learning rate to that of the next block.
        accumulation_steps: number of batches whose mean gradient makes one update.
        ema_momentum: momentum of an exponential moving average (EMA) of the weights over the
            updates; `None` for no averages.
        unfreeze_steps: number of updates after which the next block, from the last, is trained too;
            the layers after the blocks are trained from the start. 0 trains all from the start.
        name: name of the optimizer.
        **arguments: further arguments of the Keras optimizer that is mixed in.

    Raises:
        ValueError: if an argument is out of range; and in `build` with `layer_decay` or
            `unfreeze_steps`, if the variables belong to no Transformer blocks.

    Reference:
        Gradual unfreezing: ULMFiT (arXiv 1801.06146), section 3.3.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay=0.0,
        clip_norm=None,
        layer_decay=1.0,
        accumulation_steps=1,
        ema_momentum=None,
        unfreeze_steps=0,
        name=None,
        **arguments,
    ):
        count_is_right = is_integer(accumulation_steps) and accumulation_steps >= 1
        pause_is_right = is_integer(unfreeze_steps) and unfreeze_steps >= 0
        rules = {
            "weight_decay": (weight_decay, 0 <= weight_decay < math.inf, "not be negative"),
            "clip_norm": (clip_norm, clip_norm is None or clip_norm > 0, "be positive"),
            "layer_decay": (layer_decay, 0 < layer_decay < math.inf, "be positive"),
            "accumulation_steps": (accumulation_steps, count_is_right, "be a positive integer"),
            "unfreeze_steps": (unfreeze_steps, pause_is_right, "be an integer of at least 0"),
        }
        for argument, (value, is_right, rule) in rules.items():
            if not is_right:
                raise ValueError(f"`{argument}` must {rule}. Received: {argument}={value}")
        check_rate("ema_momentum", ema_momentum or 0)
        super().__init__(learning_rate, name=name, **arguments)
        self.schedule = learning_rate
        self.kernel_decay = weight_decay
        self.clip_norm = clip_norm
        self.layer_decay = layer_decay
        self.accumulation_steps = accumulation_steps
        self.ema_momentum = ema_momentum
        self.unfreeze_steps = unfreeze_steps
        self.averages = None

    def build(self, variables):
        # Some of Keras's optimizers have a decay of their own by default.
        self.exclude_from_weight_decay(var_list=variables)
        super().build(variables)
        # A function: Keras counts the variables of a list among the optimizer's own.
        self.trained = lambda: variables
        # It is assigned in each replica, with the same value.
        self.gradient_norm = self.add_variable(
            (), dtype="float32", aggregation="only_first_replica", name="gradient_norm"
        )
        # The layers after the blocks are at distance 0, the last block at 1.
        is_needed = self.layer_decay != 1 or self.unfreeze_steps
        self.distances = layer_distances(variables, is_needed)
        self.decays = [self.kernel_decay * (v.name in DECAYED) for v in variables]
        if self.accumulation_steps > 1:
            self.sums = self.add_optimizer_variables(variables, "sum")
        if self.ema_momentum is not None:
            self.averages = [
                # A copy: JAX donates the buffers of a model's variables to the training step.
                self.add_variable_from_reference(
                    variable, "average", lambda shape, dtype, v=variable: ops.copy(v)
                )
                for variable in variables
            ]

    @property
    def updates(self):
        """Number of updates of the weights so far."""
        return ops.floor_divide(self.iterations, self.accumulation_steps)

    @property
    def learning_rate(self):
        """Learning rate of the next update."""
        is_schedule = isinstance(self.schedule, keras.optimizers.schedules.LearningRateSchedule)
        return self.schedule(self.updates) if is_schedule else super().learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        keras.optimizers.Optimizer.learning_rate.fset(self, value)
        self.schedule = value

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(list(trainable_variables))
        variables = trainable_variables or self.trained()
        pairs = zip(grads, variables, strict=True)
        # As in Keras, variables without a gradient are not updated.
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
        # Keras sums over the replicas once more.
        super().apply([grad / num_replicas for grad in grads], variables)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        gradient = ops.cast(gradient, dtype)
        if self.accumulation_steps > 1:
            self._set(self.sums[index], ops.zeros_like(gradient), otherwise=gradient)
            rate = ops.convert_to_tensor(learning_rate)
            learning_rate = ops.where(self._is_update(), rate, 0.0)
        if self.clip_norm is not None:
            scale = self.clip_norm * ops.minimum(1 / self.gradient_norm, 1 / self.clip_norm)
            gradient = gradient * ops.cast(scale, dtype)
        rate = ops.cast(learning_rate * self._factor(index), dtype)
        self.move(variable, gradient, rate, index)
        if self.ema_momentum is not None:
            self._add_to_average(self.averages[index], variable)

    def move(self, variable, gradient, rate, index):
        """Update a variable by a gradient, which is clipped and a mean over accumulated batches.

        The index is that of the variable among those that the optimizer was built with.
        """
        if self.decays[index]:
            self.assign_sub(variable, rate * self.decays[index] * variable)
        super().update_step(gradient, variable, rate)

    def _factor(self, index):
        """Return the factor of a variable's learning rate in this update."""
        distance = self.distances[index]
        factor = self.layer_decay**distance
        if not self.unfreeze_steps:
            return factor
        is_trained = self.updates >= self.unfreeze_steps * distance
        return ops.where(is_trained, factor, 0.0)

    def _is_update(self):
        return ops.equal((self.iterations + 1) % self.accumulation_steps, 0)

    def _set(self, variable, value, otherwise=None):
        """Assign a value to a variable if this batch is the last of an update.

        It selects values instead of branching: replicas cannot communicate inside a condition.
        """
        if self.accumulation_steps > 1:
            otherwise = ops.convert_to_tensor(variable) if otherwise is None else otherwise
            value = ops.where(self._is_update(), value, otherwise)
        self.assign(variable, value)

    def _add_to_average(self, average, variable):
        momentum = ops.where(ops.equal(self.updates, 0), 0.0, self.ema_momentum)
        momentum = ops.cast(momentum, variable.dtype)
        self._set(average, momentum * average + (1 - momentum) * variable)


class PaperOptimizer(PaperUpdates, keras.optimizers.Optimizer):
    """Base class of the paper's optimizers.

    Args:
        learning_rate: as in `PaperUpdates`.
        momentum_dtype: dtype in which the momentum is stored; `None` for that of the variables.
            vit_jax and big_vision store it in `"bfloat16"`.
        **arguments: as in `PaperUpdates`.
    """

    def __init__(self, learning_rate, momentum_dtype=None, **arguments):
        if momentum_dtype is not None:
            check_choice("momentum_dtype", momentum_dtype, MOMENTUM_DTYPES)
        super().__init__(learning_rate, **arguments)
        self.momentum_dtype = momentum_dtype

    def add_momentum(self, variables, name):
        """Add a variable of `momentum_dtype` for each variable, with its layout on the devices."""
        if self.momentum_dtype is None:
            return self.add_optimizer_variables(variables, name)
        distribution = keras.distribution.distribution()
        return [
            self.add_variable(
                variable.shape,
                dtype=self.momentum_dtype,
                layout=distribution and distribution.get_variable_layout(variable),
                name=f"{variable.path.replace('/', '_')}_{name}",
            )
            for variable in variables
        ]

    def decay_of(self, factor):
        """Return the factor by which optax multiplies the stored momentum.

        optax rounds it to the dtype of the momentum: in bfloat16, 0.9 is 0.8984375. Compiled by
        XLA, the product itself is not rounded.
        """
        return float(ml_dtypes.bfloat16(factor)) if self.momentum_dtype == "bfloat16" else factor

    def move(self, variable, gradient, rate, index):
        direction = self.direction(gradient, index)
        if self.decays[index]:
            direction = direction + self.decays[index] * variable
        self.assign_sub(variable, rate * direction)

    def direction(self, gradient, index):
        """Return the direction of an update, before weight decay and learning rate."""
        raise NotImplementedError

    def get_config(self):
        # Keras uses attributes of these two names itself.
        rate, decay = super().get_config()["learning_rate"], self.kernel_decay
        return {**constructor_arguments(self), "learning_rate": rate, "weight_decay": decay}


def layer_distances(variables, is_needed=True):
    """Return how many layers each variable is before the layers after the blocks.

    The distance of the head, the pooling and the last LayerNorm is 0, that of the last block 1,
    and so on down to the patch embedding (and the ResNet of a hybrid). Position embeddings at the
    beginning of a block belong to it.

    Reference:
        BEiT (arXiv 2106.08254), `get_num_layer_for_vit` in its `optim_factory.py`.
    """
    blocks = [
        re.match(r"(?:block|position_embedding)_(\d+)/", variable.path) for variable in variables
    ]
    depth = max((int(block[1]) + 1 for block in blocks if block), default=0)
    if is_needed and not depth:
        raise ValueError(
            "`layer_decay` and `unfreeze_steps` are for the Transformer blocks of a model of this "
            "package. Received: a model whose trained variables are in no block"
        )
    distances = []
    for variable, block in zip(variables, blocks, strict=True):
        if block:
            distances.append(depth - int(block[1]))
        else:
            distances.append(depth + 1 if variable.path.startswith(BEFORE_BLOCKS) else 0)
    return distances
