"""The recipes, compared with the paper's tables, and their settings."""

import dataclasses
import math

import keras
import numpy as np
import pytest

from keras_vit.data.images.geometry import hyper_rule_sizes
from keras_vit.training.optimizers import learning_rate_schedule
from keras_vit.training.recipe import RECIPES, ROWS, find_recipe

JFT = ("linear", 0.1, 0.0)
# Table 3: epochs, learning rate, decay, weight decay, dropout.
PRETRAINING = {
    "jft300m_vit_b": (7, 8e-4, *JFT),
    "jft300m_vit_l32": (7, 6e-4, *JFT),
    "jft300m_vit_l16": (7, 4e-4, *JFT),
    "jft300m_vit_l16_14_epochs": (14, 4e-4, *JFT),
    "jft300m_vit_h14": (14, 3e-4, *JFT),
    "jft300m_r50": (7, 1e-3, *JFT),
    "jft300m_r101": (7, 8e-4, *JFT),
    "jft300m_r152": (7, 6e-4, *JFT),
    "jft300m_r50_vit_b": (7, 8e-4, *JFT),
    "jft300m_r50_vit_l32": (7, 2e-4, *JFT),
    "jft300m_r50_vit_l16": (7, 4e-4, *JFT),
    "jft300m_r50_vit_l16_14_epochs": (14, 4e-4, *JFT),
    "pretrain": (90, 1e-3, "linear", 0.03, 0.1),
    "imagenet21k_vit_l_30_epochs": (30, 1e-3, "linear", 0.03, 0.1),
    "imagenet_vit": (300, 3e-3, "cosine", 0.3, 0.1),
}
# Table 4: steps, learning rates.
FINE_TUNING = {
    "finetune": (20_000, (0.003, 0.01, 0.03, 0.06)),
    "finetune_cifar": (10_000, (0.001, 0.003, 0.01, 0.03)),
    "finetune_pets_flowers": (500, (0.001, 0.003, 0.01, 0.03)),
    "finetune_vtab": (2500, (0.01,)),
}
# `get_schedule` of bit_hyperrule.py by the number of images, one of each range.
SUPPORTS = {
    "small": (19_999, [100, 200, 300, 400, 500]),
    "medium": (20_000, [500, 3000, 6000, 9000, 10_000]),
    "large": (500_000, [500, 6000, 12_000, 18_000, 20_000]),
}


@pytest.mark.parametrize("name", PRETRAINING)
def test_pretraining_is_table_3(name):
    recipe = RECIPES[name]
    fields = ("epochs", "learning_rate", "decay", "weight_decay", "dropout")
    assert tuple(getattr(recipe, field) for field in fields) == PRETRAINING[name]
    assert (recipe.optimizer, recipe.batch_size, recipe.warmup_steps) == ("adamw", 4096, 10_000)
    assert (recipe.image_size, recipe.pre_logits) == (224, True)
    assert recipe.clip_norm == (1.0 if name == "imagenet_vit" else None)


@pytest.mark.parametrize("name", FINE_TUNING)
def test_fine_tuning_is_table_4(name):
    recipe = RECIPES[name]
    steps, rates = FINE_TUNING[name]
    assert recipe.steps == steps
    assert recipe.learning_rate in rates
    assert (recipe.optimizer, recipe.decay, recipe.batch_size) == ("sgd", "cosine", 512)
    assert (recipe.weight_decay, recipe.clip_norm, recipe.dropout) == (0, 1.0, 0)
    assert recipe.image_size == 384


def test_augreg_pretraining_is_big_visions():
    """`configs/vit_i21k.py`, where the learning rate does not multiply the weight decay of 1e-4."""
    recipe = RECIPES["augreg_imagenet21k"]
    assert recipe.weight_decay * recipe.learning_rate == pytest.approx(1e-4)
    assert (recipe.loss, recipe.head_bias, recipe.clip_norm) == ("sigmoid", -10, 1)
    assert (recipe.epochs, recipe.batch_size, recipe.decay) == (300, 4096, "cosine")
    assert (recipe.optimizer, recipe.warmup_steps) == ("adamw", 10_000)


def test_function_matching_is_big_visions():
    """`configs/proj/distill/bit_i1k.py`; the learning rate does not multiply its decay of 3e-4."""
    recipe = RECIPES["function_matching"]
    assert recipe.weight_decay * recipe.learning_rate == pytest.approx(3e-4)
    assert (recipe.learning_rate, recipe.warmup_steps, recipe.decay) == (0.03, 5000, "cosine")
    assert (recipe.image_size, recipe.batch_size, recipe.epochs) == (224, 4096, 1200)
    assert (recipe.optimizer, recipe.clip_norm, recipe.dropout) == ("adamw", 1, 0)
    assert (recipe.distillation, recipe.temperature, recipe.label_weight) == ("soft", 1, 0)
    assert (recipe.augmentation, recipe.flip, recipe.min_crop_area) == ("mixup", "random", 0.05)


@pytest.mark.parametrize("size", SUPPORTS)
@pytest.mark.parametrize(("images", "suffix"), [((32, 32), "_tiny_images"), ((375, 500), "")])
def test_bit_hyper_rule_is_big_transfers(size, images, suffix):
    recipe = RECIPES[f"bit_hyperrule_{size}{suffix}"]
    num_examples, supports = SUPPORTS[size]
    assert [recipe.warmup_steps, *recipe.boundaries, recipe.steps] == supports
    assert (recipe.decay, recipe.learning_rate) == ("staircase", 0.003)
    assert (recipe.random_crop_from, recipe.image_size) == hyper_rule_sizes(*images)
    assert (recipe.augmentation == "bit") == (num_examples >= 20_000)
    assert (recipe.optimizer, recipe.batch_size, recipe.min_crop_area) == ("sgd", 512, None)


def test_every_row_has_a_source_and_a_recipe():
    assert all(row.source for row in ROWS.values())
    assert {name: find_recipe(name) for name in ROWS} == RECIPES


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


# One row a rule: the argument that the error names, and what breaks it.
WRONG = [
    ("boundaries", {"decay": "staircase", "boundaries": (9000, 600)}),
    ("boundaries", {"decay": "staircase", "boundaries": (500,)}),
    ("label_smoothing", {"loss": "sigmoid", "label_smoothing": 0.1}),
    ("segment_head", {"segment_head": "mask"}),
    ("lora_rank", {"loss": "segmentation", "segment_head": "mask", "lora_rank": 4}),
    ("lora_alpha", {"lora_alpha": 2.0}),
    ("lora_rank", {"lora_rank": 2, "freeze": True}),
    ("freeze", {"freeze": True, "augmentation": "bit"}),
    ("freeze", {"freeze": True, "frozen_blocks": 1}),
    ("class_balance", {"loss": "pixels", "class_balance": "weights"}),
    ("class_balance", {"loss": "regression", "class_balance": "sampling"}),
    ("head_bias", {"loss": "regression", "head_bias": -10.0}),
    ("temperature", {"distillation": "hard", "temperature": 2.0}),
    ("label_weight", {"label_weight": 1.0}),
    ("epochs", {"epochs": 2}),
    ("learning_rate", {"learning_rate": math.nan}),
    ("layer_decay", {"optimizer": "lion", "layer_decay": 0.7}),
    ("unfreeze_steps", {"optimizer": "lion", "unfreeze_steps": 3}),
    ("accumulation_steps", {"optimizer": "lion", "accumulation_steps": 2}),
    ("momentum_dtype", {"optimizer": "lion", "momentum_dtype": "bfloat16"}),
]


@pytest.mark.parametrize(("argument", "changes"), WRONG)
def test_settings_that_do_not_go_together_are_refused(argument, changes):
    with pytest.raises(ValueError, match=f"`{argument}`"):
        dataclasses.replace(RECIPES["finetune"], **changes)


def test_epochs_divide_the_steps_of_a_run():
    assert dataclasses.replace(RECIPES["digits_pretrain"], epochs=3).epoch_lengths(1000) == (3, 32)
    assert RECIPES["finetune"].epoch_lengths(1_281_167) == (5, 4000)
    for steps, num_examples, expected in [
        (100, 372, (5, 20)),
        (100, 10_000, (1, 100)),
        (2500, 40, (25, 100)),
        (101, 372, (1, 101)),
        (20, 1, (10, 2)),
    ]:
        recipe = dataclasses.replace(RECIPES["digits_finetune"], steps=steps)
        assert recipe.epoch_lengths(num_examples) == expected


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("digits_finetune", {"warmup_steps": 100}),
        # The last boundary is 400.
        ("bit_hyperrule_small", {"steps": 400, "warmup_steps": 5}),
    ],
)
def test_a_schedule_that_is_longer_than_the_run_is_refused(name, changes):
    recipe = dataclasses.replace(RECIPES[name], **changes)
    with pytest.raises(ValueError, match="`boundaries` must be smaller than the steps"):
        recipe.epoch_lengths(1000)
