"""Learning rates over the steps of a run: Keras's schedules behind a warm-up."""

import keras
from keras import ops

# Where the original's linear decay ends: `vit_jax/utils.py`.
LINEAR_END = 1e-5
# Of big_vision's `utils.create_learning_rate_schedule`.
TIMESCALE = 10_000


@keras.saving.register_keras_serializable("keras_vit")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to the start of another schedule.

    Args:
        schedule: a `keras.optimizers.schedules.LearningRateSchedule` that starts when the warm-up
            is over.
        steps: steps of the warm-up. The first update has the learning rate 0.

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
    """Falls with the square root of the steps and needs no end.

    Args:
        learning_rate: at the start.
        timescale: steps after which it has fallen by the square root of 2.

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
    """The schedule of a recipe; the first update has the learning rate 0 where there is a warm-up.

    Args:
        decay: `"linear"` (to 1e-5, or constant if `learning_rate` is smaller),
            `"cosine"` (to 0), `"rsqrt"` (without an end) or `"staircase"`.
        learning_rate: reached at the end of the warm-up.
        total_steps: steps of the run, the warm-up included.
        warmup_steps: steps of the warm-up.
        boundaries: of a staircase, the steps after which it is a tenth of what it was.

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
