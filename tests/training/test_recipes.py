"""The recipes, beside the paper's tables."""

import dataclasses

import numpy as np
import pytest

from keras_vit.data.images.transforms import hyper_rule_sizes
from keras_vit.training.recipes import RECIPES, SOURCES
from keras_vit.training.schedules import learning_rate_schedule

# Table 3: epochs, learning rate, decay, weight decay, dropout.
PRETRAINING = {
    "jft300m_vit_b": (7, 8e-4, "linear", 0.1, 0.0),
    "jft300m_vit_l32": (7, 6e-4, "linear", 0.1, 0.0),
    "jft300m_vit_l16": (7, 4e-4, "linear", 0.1, 0.0),
    "jft300m_vit_l16_14_epochs": (14, 4e-4, "linear", 0.1, 0.0),
    "jft300m_vit_h14": (14, 3e-4, "linear", 0.1, 0.0),
    "jft300m_r50": (7, 1e-3, "linear", 0.1, 0.0),
    "jft300m_r101": (7, 8e-4, "linear", 0.1, 0.0),
    "jft300m_r152": (7, 6e-4, "linear", 0.1, 0.0),
    "jft300m_r50_vit_b": (7, 8e-4, "linear", 0.1, 0.0),
    "jft300m_r50_vit_l32": (7, 2e-4, "linear", 0.1, 0.0),
    "jft300m_r50_vit_l16": (7, 4e-4, "linear", 0.1, 0.0),
    "jft300m_r50_vit_l16_14_epochs": (14, 4e-4, "linear", 0.1, 0.0),
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


def test_every_recipe_says_its_source():
    assert list(SOURCES) == list(RECIPES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay": "staircase"}, r"`boundaries` must be given for a staircase.*boundaries=\(\)"),
        ({"boundaries": (3,)}, "`boundaries` must be given for a staircase.*decay='cosine'"),
        ({"decay": "staircase", "boundaries": (9000, 600)}, "`boundaries` must rise.*9000, 600"),
        ({"decay": "staircase", "boundaries": (500,)}, "`boundaries` must rise.*warmup_steps=500"),
        ({"random_crop_from": 512}, "Only one of `min_crop_area` and `random_crop_from`"),
        ({"loss": "sigmoid", "label_smoothing": 0.1}, "`label_smoothing` is for the softmax"),
        ({"label_smoothing": 1}, "`label_smoothing` must be at least 0 and less than 1"),
        ({"loss": "hinge"}, "`loss` must be one of .*loss='hinge'"),
        ({"decay": "exponential"}, "`decay` must be one of .*decay='exponential'"),
    ],
)
def test_wrong_recipe(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(RECIPES["finetune"], **changes)
