"""Learning-rate schedules: Keras's own after a warm-up."""

import keras
from keras import ops

# End of the original's linear decay, in `vit_jax/utils.py`.
LINEAR_END = 1e-5
# As in big_vision's `utils.create_learning_rate_schedule`.
TIMESCALE = 10_000


@keras.saving.register_keras_serializable("keras_vit")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, at the first update, to the start of another schedule.

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
    """Decay by the reciprocal square root of the steps, which needs no last step.

    After `timescale` steps the learning rate is divided by the square root of 2.

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
    """Make the learning-rate schedule of a recipe.

    `"linear"` ends at 1e-5, or is constant if `learning_rate` is smaller; `total_steps` includes
    the warm-up.
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
