"""Learning-rate schedules and optimizers: SGD and AdamW as in optax, and Keras's optimizers."""

import re
from typing import Any

import keras
import ml_dtypes
from keras import ops

from keras_vit.core.arguments import check_choice, check_integer, check_rate, constructor_arguments
from keras_vit.models.image_model import computes_in_float16
from keras_vit.training.distribution import num_replicas, sum_over_replicas
from keras_vit.training.recipe import MOMENTUM_DTYPES, PAPER_OPTIMIZERS, Recipe

__all__ = ["SGD", "AdamW", "inner_optimizer", "make_optimizer"]

# Final learning rate of the linear decay, as in `vit_jax/utils.py`.
LINEAR_END = 1e-5
# Timescale of the decay `"rsqrt"`, as in big_vision's `utils.create_learning_rate_schedule`.
TIMESCALE = 10_000
# Prefixes of the paths of variables before the blocks. All other variables outside of blocks belong
# to the head, whose learning rate layer-wise decay does not reduce.
BEFORE_BLOCKS = (
    *("root_", "stage_", "patch_embedding/", "corrupt_patches/", "register_tokens/"),
    *("distillation_token/", "class_token/", "position_embedding/", "pre_norm/"),
)
# Names of the variables with weight decay: kernels, and the matrices of LoRA.
DECAYED = ("kernel", "lora_kernel_a", "lora_kernel_b")


@keras.saving.register_keras_serializable("keras_vit")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, followed by another schedule.

    Reference:
        `create_learning_rate_schedule` in `vit_jax/utils.py`.
    """

    def __init__(self, schedule, steps):
        self.schedule = schedule
        self.steps = steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        after = ops.maximum(step - self.steps, 0.0)
        return self.schedule(after) * ops.minimum(1.0, step / self.steps)

    def get_config(self):
        schedule = keras.optimizers.schedules.serialize(self.schedule)
        return {"schedule": schedule, "steps": self.steps}

    @classmethod
    def from_config(cls, config):
        schedule = keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(schedule, config["steps"])


@keras.saving.register_keras_serializable("keras_vit")
class ReciprocalSquareRootDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Decay by the reciprocal square root of the step. It does not depend on the length of the run.

    After `timescale` steps the learning rate has been divided by the square root of 2.

    Reference:
        `rsqrt` of `create_learning_rate_schedule` in big_vision's `utils.py`; Scaling Vision
        Transformers (arXiv 2106.04560), section 3.5.
    """

    def __init__(self, learning_rate, timescale=TIMESCALE):
        self.learning_rate = learning_rate
        self.timescale = timescale

    def __call__(self, step):
        step = ops.cast(step, "float32")
        return self.learning_rate / ops.sqrt(1.0 + step / self.timescale)

    def get_config(self):
        return {"learning_rate": self.learning_rate, "timescale": self.timescale}


def learning_rate_schedule(decay, learning_rate, total_steps, warmup_steps, boundaries=()):
    """Return the learning-rate schedule of a recipe.

    `total_steps` includes the warm-up. The decay `"linear"` ends at 1e-5; a `learning_rate` below
    1e-5 stays constant.
    """
    schedules = keras.optimizers.schedules
    steps = total_steps - warmup_steps
    if decay == "linear":
        schedule = schedules.PolynomialDecay(learning_rate, steps, min(LINEAR_END, learning_rate))
    elif decay == "cosine":
        schedule = schedules.CosineDecay(learning_rate, steps)
    elif decay == "rsqrt":
        schedule = ReciprocalSquareRootDecay(learning_rate)
    else:
        schedule = schedules.PiecewiseConstantDecay(
            [boundary - warmup_steps for boundary in boundaries],
            [learning_rate / 10**count for count in range(len(boundaries) + 1)],
        )
    return WarmUp(schedule, warmup_steps) if warmup_steps else schedule


class PaperOptimizer(keras.optimizers.Optimizer):
    """Base class of the paper's optimizers, with clipping, accumulation and EMA.

    Keras's optimizers differ: they clip each replica's gradients before summing them, and cannot
    accumulate under `MirroredStrategy`. With accumulation, they count each batch as a step of the
    schedule; this class counts each update.

    Args:
        learning_rate: float, or a `keras.optimizers.schedules.LearningRateSchedule`, a function of
            the number of updates.
        weight_decay: decoupled weight decay of kernels, before it is multiplied by the learning
            rate.
        clip_norm: global norm at which gradients are clipped; `None` for no clipping.
        layer_decay: ratio of a block's learning rate to the learning rate of the next block.
        accumulation_steps: number of batches whose mean gradient makes one update.
        ema_momentum: momentum of an exponential moving average (EMA) of the weights over the
            updates; `None` for no EMA.
        unfreeze_steps: number of updates after which one more block is trained, from the last to
            the first. The layers after the blocks are trained from the start. With 0, all layers
            are trained from the start.
        momentum_dtype: dtype in which the momentum is stored; `None` for the dtype of the
            variables. vit_jax and big_vision store it in `"bfloat16"`.
        name: name of the optimizer.

    Raises:
        ValueError: if an argument is out of range; or, from `build` with `layer_decay` or
            `unfreeze_steps`, if no variable belongs to a Transformer block.

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
        momentum_dtype=None,
        name=None,
    ):
        check_integer("accumulation_steps", accumulation_steps, 1)
        check_integer("unfreeze_steps", unfreeze_steps, 0)
        check_rate("ema_momentum", ema_momentum or 0)
        check_choice("momentum_dtype", momentum_dtype, (None, *MOMENTUM_DTYPES))
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"`clip_norm` must be positive. Received: clip_norm={clip_norm}")
        super().__init__(learning_rate, name=name)
        self.schedule = learning_rate
        self.kernel_decay = weight_decay
        self.clip_norm = clip_norm
        self.layer_decay = layer_decay
        self.accumulation_steps = accumulation_steps
        self.ema_momentum = ema_momentum
        self.unfreeze_steps = unfreeze_steps
        self.momentum_dtype = momentum_dtype

    def build(self, variables):
        super().build(variables)
        # A function: Keras would count the variables of a list attribute as the optimizer's own.
        self.trained = lambda: variables
        # All replicas assign the same value, so the first one's is enough.
        self.gradient_norm = self.add_variable(
            (), dtype="float32", aggregation="only_first_replica", name="gradient_norm"
        )
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
        """Number of updates of the weights so far. `iterations` counts batches."""
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
        # Keras sums over the replicas again, so divide by their number.
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
        direction = self.direction(gradient, index)
        if self.decays[index]:
            direction = direction + self.decays[index] * variable
        self.assign_sub(variable, rate * direction)
        if self.ema_momentum is not None:
            momentum = ops.where(ops.equal(self.updates, 0), 0.0, self.ema_momentum)
            momentum = ops.cast(momentum, dtype)
            average = self.averages[index]
            self._set(average, momentum * average + (1 - momentum) * variable)

    def direction(self, gradient, index):
        """Return the direction of an update, before weight decay and learning rate.

        `gradient` is the mean over the accumulated batches, clipped. `index` is the index of the
        variable in the list of variables that the optimizer was built with.
        """
        raise NotImplementedError

    def add_momentum(self, variables, name):
        """Add a momentum of `momentum_dtype` for each variable, on the same devices."""
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

    def round_factor(self, factor):
        """Round the factor that multiplies the momentum, as optax does.

        optax casts the factor to the dtype of the momentum: in bfloat16, 0.9 is 0.8984375. Under
        XLA, the product of factor and momentum is not rounded.
        """
        return float(ml_dtypes.bfloat16(factor)) if self.momentum_dtype == "bfloat16" else factor

    def _factor(self, index):
        """Return the number that multiplies the learning rate of a variable in this update."""
        distance = self.distances[index]
        factor = self.layer_decay**distance
        if not self.unfreeze_steps:
            return factor
        is_trained = self.updates >= self.unfreeze_steps * distance
        return ops.where(is_trained, factor, 0.0)

    def _is_update(self):
        return ops.equal((self.iterations + 1) % self.accumulation_steps, 0)

    def _set(self, variable, value, otherwise=None):
        """Assign `value` if this batch is the last of an update, else `otherwise`.

        Use `ops.where`, not `ops.cond`: replicas cannot communicate inside a branch.
        """
        if self.accumulation_steps > 1:
            otherwise = ops.convert_to_tensor(variable) if otherwise is None else otherwise
            value = ops.where(self._is_update(), value, otherwise)
        self.assign(variable, value)

    def get_config(self):
        # Keras uses attributes of these two names for something else.
        rate, decay = super().get_config()["learning_rate"], self.kernel_decay
        return {**constructor_arguments(self), "learning_rate": rate, "weight_decay": decay}


@keras.saving.register_keras_serializable("keras_vit")
class SGD(PaperOptimizer):
    """Gradient descent with momentum, as in optax.

    optax adds gradients up, and multiplies the sum by the learning rate of the present step. Keras
    multiplies each gradient by the learning rate of its step, and adds the products up. The results
    differ while the learning rate changes, most in the warm-up.

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
        trace = gradient + self.round_factor(self.momentum) * trace
        self._set(self.traces[index], trace)
        return trace


@keras.saving.register_keras_serializable("keras_vit")
class AdamW(PaperOptimizer):
    """Adam with decoupled weight decay, and epsilon as in optax.

    optax adds epsilon to the square root of the second moment after the bias correction. Keras adds
    epsilon before the bias correction, which makes its effect up to 30 times larger in the first
    steps.

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
        # Compute in float32: half precision would round 0.999 to 1 and epsilon to 0.
        gradient, mean, square = (
            ops.cast(value, "float32")
            for value in (gradient, self.means[index], self.squares[index])
        )
        mean = self.round_factor(self.beta_1) * mean + (1 - self.beta_1) * gradient
        square = self.beta_2 * square + (1 - self.beta_2) * ops.square(gradient)
        self._set(self.means[index], mean)
        self._set(self.squares[index], ops.cast(square, dtype))
        step = ops.cast(self.updates + 1, "float32")
        mean = mean / (1 - ops.power(self.beta_1, step))
        square = square / (1 - ops.power(self.beta_2, step))
        return ops.cast(mean / (ops.sqrt(square) + self.epsilon), dtype)


def layer_distances(variables, is_needed=True):
    """Return the distance of each variable from the head, in blocks.

    The head, the pooling and the last LayerNorm have the distance 0, the last block has 1, the
    block before it 2. The patch embedding (and the ResNet of a hybrid) has the largest distance.
    Position embeddings that are added in a block have the distance of the block.

    Reference:
        BEiT (arXiv 2106.08254), `get_num_layer_for_vit` in its `optim_factory.py`.
    """
    blocks = [
        re.match(r"(?:block|position_embedding)_(\d+)/", variable.path) for variable in variables
    ]
    depth = max((int(block[1]) + 1 for block in blocks if block), default=0)
    if is_needed and not depth:
        raise ValueError(
            "`layer_decay` and `unfreeze_steps` need a model of this package with Transformer "
            "blocks. Received: a model with no trained variable in a block"
        )
    distances = []
    for variable, block in zip(variables, blocks, strict=True):
        if block:
            distances.append(depth - int(block[1]))
        else:
            distances.append(depth + 1 if variable.path.startswith(BEFORE_BLOCKS) else 0)
    return distances


def make_optimizer(
    recipe: Recipe, model: keras.Model, total_steps: int
) -> keras.optimizers.Optimizer:
    """Build the optimizer of a recipe for a built model and `total_steps` updates.

    Reference:
        Tables 3 and 4 of the ViT paper (arXiv 2010.11929).
    """
    learning_rate = learning_rate_schedule(
        recipe.decay, recipe.learning_rate, total_steps, recipe.warmup_steps, recipe.boundaries
    )
    if recipe.optimizer in PAPER_OPTIMIZERS:
        optimizer = {"sgd": SGD, "adamw": AdamW}[recipe.optimizer](
            learning_rate,
            weight_decay=recipe.weight_decay,
            clip_norm=recipe.clip_norm,
            layer_decay=recipe.layer_decay,
            accumulation_steps=recipe.accumulation_steps,
            ema_momentum=recipe.ema_momentum,
            unfreeze_steps=recipe.unfreeze_steps,
            momentum_dtype=recipe.momentum_dtype,
        )
    else:
        optimizer = _keras_optimizer(recipe, model, learning_rate)
    # Keras itself would add loss scaling by the dtype policy of the compiled model, which is wrong
    # for a `Distiller`: it has the global policy.
    if not computes_in_float16(model):
        return optimizer
    if recipe.accumulation_steps > 1:
        # Keras skips a batch whose gradients overflow. All later updates would then begin one batch
        # late.
        raise ValueError(
            "`accumulation_steps` cannot be combined with float16; use `mixed_bfloat16`. "
            f"Received: accumulation_steps={recipe.accumulation_steps}"
        )
    return keras.optimizers.LossScaleOptimizer(optimizer)


def _keras_optimizer(recipe, model, learning_rate):
    """Build an optimizer of Keras, with Keras's clipping, EMA and weight decay."""
    if recipe.clip_norm and keras.backend.backend() == "tensorflow" and num_replicas() > 1:
        raise ValueError(
            "`clip_norm` on several replicas of TensorFlow needs the optimizer `adamw` or `sgd`: "
            "the other optimizers clip the gradients of each replica separately. "
            f"Received: clip_norm={recipe.clip_norm}, optimizer={recipe.optimizer!r}"
        )
    classes = {kind.lower(): getattr(keras.optimizers, kind) for kind in dir(keras.optimizers)}
    options = {"use_ema": True, "ema_momentum": recipe.ema_momentum} if recipe.ema_momentum else {}
    if recipe.optimizer == "muon":
        # Muon trains some variables with AdamW.
        options["adam_weight_decay"] = recipe.weight_decay
    optimizer = classes[recipe.optimizer](
        learning_rate,
        weight_decay=recipe.weight_decay,
        global_clipnorm=recipe.clip_norm,
        **options,
    )
    excluded = [variable for variable in model.trainable_variables if variable.name not in DECAYED]
    optimizer.exclude_from_weight_decay(var_list=excluded)
    return optimizer


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
    """Return the optimizer of a compiled model, without the loss scaling that float16 adds."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def averages_of(model: keras.Model) -> list:
    """Return the optimizer's variables that contain the EMA of a model's weights.

    They are in the order of the trainable variables. The list is empty without an EMA.
    """
    return [v for v in inner_optimizer(model).variables if v.name.endswith("_average")]
