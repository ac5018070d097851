"""Schedules and averages, compared with optax."""

import keras
import numpy as np
import pytest

from keras_vit.training.optimizers import learning_rate_schedule

BOUNDARIES = (30, 60, 80)


def original_learning_rate(step, base, total_steps, warmup_steps, decay):
    """`create_learning_rate_schedule` of vit_jax and big_vision and `get_lr` of big_transfer."""
    progress = np.clip((step - warmup_steps) / (total_steps - warmup_steps), 0, 1)
    if decay == "linear":
        rate = 1e-5 + (base - 1e-5) * (1 - progress)
    elif decay == "cosine":
        rate = base * 0.5 * (1 + np.cos(np.pi * progress))
    elif decay == "rsqrt":
        rate = base / np.sqrt(1 + max(step - warmup_steps, 0) / 10_000)
    else:
        rate = base / 10 ** sum(boundary < step for boundary in BOUNDARIES)
    return rate * min(1, step / warmup_steps) if warmup_steps else rate


@pytest.mark.parametrize("decay", ["linear", "cosine", "rsqrt", "staircase"])
@pytest.mark.parametrize("warmup_steps", [0, 10])
def test_schedule_is_the_originals(decay, warmup_steps):
    schedule = learning_rate_schedule(decay, 0.03, 100, warmup_steps, BOUNDARIES)
    for step in range(101):
        expected = original_learning_rate(step, 0.03, 100, warmup_steps, decay)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=1e-8)
    config = keras.optimizers.schedules.serialize(schedule)
    copy = keras.optimizers.schedules.deserialize(config)
    assert float(copy(70)) == float(schedule(70))


def test_a_small_learning_rate_never_rises():
    schedule = learning_rate_schedule("linear", 1e-6, 100, 10)
    assert [float(schedule(step)) for step in (10, 50, 100)] == pytest.approx([1e-6] * 3)
