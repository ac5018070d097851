"""The recipes, compared with the paper's tables, and their settings."""

import dataclasses
import math

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


def hyper_rule_rate(step, supports, base=0.003):
    """`get_lr` of bit_hyperrule.py."""
    if step < supports[0]:
        return base * step / supports[0]
    for support in supports[1:]:
        if support < step:
            base /= 10
    return base


@pytest.mark.parametrize("size", SUPPORTS)
@pytest.mark.parametrize(("images", "suffix"), [((32, 32), "_tiny_images"), ((375, 500), "")])
def test_bit_hyper_rule_is_big_transfers(size, images, suffix):
    recipe = RECIPES[f"bit_hyperrule_{size}{suffix}"]
    num_examples, supports = SUPPORTS[size]
    schedule = learning_rate_schedule(
        recipe.decay, recipe.learning_rate, recipe.steps, recipe.warmup_steps, recipe.boundaries
    )
    steps = sorted({0, 7, *supports[:-1], *(s + 1 for s in supports[:-1]), supports[-1] - 1})
    expected = [hyper_rule_rate(step, supports) for step in steps]
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, rtol=1e-6)
    assert recipe.steps == supports[-1]
    assert (recipe.random_crop_from, recipe.image_size) == hyper_rule_sizes(*images)
    assert (recipe.augmentation == "bit") == (num_examples >= 20_000)
    assert (recipe.optimizer, recipe.batch_size, recipe.min_crop_area) == ("sgd", 512, None)


def test_every_row_has_a_source_and_a_recipe():
    assert all(row.source for row in ROWS.values())
    assert {name: find_recipe(name) for name in ROWS} == RECIPES


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay": "staircase"}, r"`boundaries` must be given for a staircase.*boundaries=\(\)"),
        ({"boundaries": (3,)}, "`boundaries` needs `decay` to be staircase.*decay='cosine'"),
        ({"decay": "staircase", "boundaries": (9000, 600)}, "`boundaries` must rise.*9000, 600"),
        ({"decay": "staircase", "boundaries": (500,)}, "`boundaries` must rise.*warmup_steps=500"),
        (
            {"loss": "sigmoid", "label_smoothing": 0.1},
            "`label_smoothing` needs `loss` to be softmax",
        ),
        ({"segment_head": "mask"}, "`segment_head` needs `loss` to be segmentation"),
        (
            {"loss": "segmentation", "segment_head": "mask", "lora_rank": 4},
            "`lora_rank` can be combined .*new decoder",
        ),
        ({"label_smoothing": 1}, "`label_smoothing` must be at least 0 and less than 1"),
        ({"loss": "hinge"}, "`loss` must be one of .*loss='hinge'"),
        ({"decay": "exponential"}, "`decay` must be one of .*decay='exponential'"),
        ({"steps": 10.5}, "`steps` must be a whole number.*steps=10.5"),
        ({"warmup_steps": 2.5}, "`warmup_steps` must be a whole number"),
        ({"batch_size": True}, "`batch_size` must be a whole number.*batch_size=True"),
        ({"boundaries": (math.nan,)}, "`boundaries` must be whole numbers"),
        ({"epochs": 2}, "Exactly one of `epochs` and `steps`.*epochs=2"),
        ({"steps": None}, "Exactly one of `epochs` and `steps`"),
        ({"steps": 0}, "`steps` must be a positive number.*steps=0"),
        ({"batch_size": -1}, "`batch_size` must be a positive number.*batch_size=-1"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be a positive number.*=nan"),
        ({"learning_rate": "0.1"}, "`learning_rate` must be a positive number.*='0.1'"),
        ({"dropout": True}, "`dropout` must be at least 0 .*dropout=True"),
        ({"seed": 2**32}, "`seed` must be at least 0 and less than"),
        ({"learning_rate": 0.0}, "`learning_rate` must be a positive number.*=0"),
        ({"warmup_steps": -1}, "`warmup_steps` must be a number of at least 0.*warmup_steps=-1"),
        ({"optimizer": "adamx"}, "`optimizer` must be one of .*optimizer='adamx'"),
        (
            {"optimizer": "lion", "layer_decay": 0.7},
            "`layer_decay` needs `optimizer` to be adamw or sgd",
        ),
        ({"optimizer": "lion", "unfreeze_steps": 3}, "`unfreeze_steps` needs `optimizer`"),
        ({"momentum_dtype": "int8"}, "`momentum_dtype` must be one of .*momentum_dtype='int8'"),
        (
            {"momentum_dtype": "bfloat16", "optimizer": "lion"},
            "`momentum_dtype` needs `optimizer` to be adamw or sgd.*optimizer='lion'",
        ),
        ({"dropout": 1.0}, "`dropout` must be .*dropout=1.0"),
        ({"position_placement": "head"}, "`position_placement` must be one of .*'head'"),
        ({"min_crop_area": 1.5}, "`min_crop_area` must be .*min_crop_area=1.5"),
        (
            {"weight_decay": -0.1},
            "`weight_decay` must be a number of at least 0.*=-0.1",
        ),
    ],
)
def test_wrong_recipe(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(RECIPES["finetune"], **changes)


def test_epochs_of_a_recipe():
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


def test_warmup_longer_than_the_run():
    recipe = dataclasses.replace(RECIPES["digits_finetune"], warmup_steps=100)
    message = "`warmup_steps` and `boundaries` must be smaller than the steps .*warmup_steps=100"
    with pytest.raises(ValueError, match=message):
        recipe.epoch_lengths(1000)


@pytest.mark.parametrize("steps", [10, 400])
def test_boundaries_that_are_not_reached(steps):
    """The last boundary of `bit_hyperrule_small` is 400."""
    recipe = dataclasses.replace(RECIPES["bit_hyperrule_small"], steps=steps, warmup_steps=5)
    with pytest.raises(ValueError, match=f"`boundaries` must be smaller .* {steps}.*300, 400"):
        recipe.epoch_lengths(1000)
