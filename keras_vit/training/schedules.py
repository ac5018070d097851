"""Learning-rate schedules: Keras's own after a warm-up."""

import keras
from keras import ops

# End of the original's linear decay, in `vit_jax/utils.py`.
LINEAR_END = 1e-5
# As in big_vision's `utils.create_learning_rate_schedule`.
TIMESCALE = 10_000


@keras.saving.register_keras_serializable("keras_vit")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to the start of another schedule.

    Args:
        schedule: a `keras.optimizers.schedules.LearningRateSchedule` that starts after the warm-up.
        steps: number of warm-up steps. The first update has the learning rate 0.

    Reference:
        `create_learning_rate_schedule` in `vit_jax/utils.py`.

    Example:
    >>> schedule = WarmUp(keras.optimizers.schedules.CosineDecay(0.1, 100), steps=10)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 60, 110)]
    [0.0, 0.05, 0.1, 0.05, 0.0]
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
    """Decay by the reciprocal square root of the steps, which needs no last step.

    Args:
        learning_rate: learning rate at the start.
        timescale: number of steps after which it is divided by the square root of 2.

    Reference:
        `rsqrt` of `create_learning_rate_schedule` in big_vision's `utils.py`; Scaling Vision
        Transformers (arXiv 2106.04560), section 3.5.

    Example:
    >>> schedule = ReciprocalSquareRootDecay(0.1, timescale=100)
    >>> [round(float(schedule(step)), 4) for step in (0, 300, 900, 9900)]
    [0.1, 0.05, 0.0316, 0.01]
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
    """Make the learning-rate schedule of a recipe.

    Args:
        decay: `"linear"` (to 1e-5, or constant if `learning_rate` is smaller), `"cosine"` (to 0),
            `"rsqrt"` (no last step), or `"staircase"` (piecewise constant).
        learning_rate: learning rate at the end of the warm-up.
        total_steps: number of steps of the run, including the warm-up.
        warmup_steps: number of warm-up steps, of which the first has the learning rate 0.
        boundaries: steps of a staircase after which the learning rate is divided by 10.

    Returns:
        A `keras.optimizers.schedules.LearningRateSchedule`.
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
