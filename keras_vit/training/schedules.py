"""Learning rates over the steps of a run."""

import keras
from keras import ops

# Where the original's linear decay ends: `vit_jax/utils.py`.
LINEAR_END = 1e-5


@keras.saving.register_keras_serializable("keras_vit")
class LinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then linear decay to 1e-5.

    Args:
        learning_rate: reached at the end of the warm-up.
        total_steps: steps of the run, the warm-up included.
        warmup_steps: steps of the warm-up.

    Reference:
        `create_learning_rate_schedule` in `vit_jax/utils.py`.

    Example:
    >>> schedule = LinearDecay(0.1, total_steps=110, warmup_steps=10)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 60, 110)]
    [0.0, 0.05, 0.1, 0.05, 0.0]
    """

    def __init__(self, learning_rate, total_steps, warmup_steps):
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        progress = (step - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        remaining = 1 - ops.clip(progress, 0.0, 1.0)
        decayed = LINEAR_END + (self.learning_rate - LINEAR_END) * remaining
        warmup = ops.minimum(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        return decayed * warmup

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
        }


def learning_rate_schedule(decay, learning_rate, total_steps, warmup_steps):
    """The schedule of a recipe; the first update has the learning rate 0 where there is a warm-up.

    Args:
        decay: `"linear"` or `"cosine"`.
        learning_rate: reached at the end of the warm-up.
        total_steps: steps of the run, the warm-up included.
        warmup_steps: steps of the warm-up.

    Returns:
        A `keras.optimizers.schedules.LearningRateSchedule`.
    """
    if decay == "linear":
        return LinearDecay(learning_rate, total_steps, warmup_steps)
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup_steps else learning_rate,
        decay_steps=total_steps - warmup_steps,
        warmup_target=learning_rate if warmup_steps else None,
        warmup_steps=warmup_steps,
    )
