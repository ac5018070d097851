"""What recipes say that the paper reports is in the paper's tables."""

import re

import pytest

from keras_vit.experiments.paper_results import paper_results
from keras_vit.training.recipe import ROWS

# Per recipe the rows whose values stand in `reported`, in its order.
OF_TABLE_2 = {
    "pretrain": ["ViT_L16/imagenet21k/imagenet2012"],
    "finetune_imagenet_512": ["ViT_L16/jft300m/imagenet2012"],
    "finetune_imagenet_518": ["ViT_H14/jft300m/imagenet2012"],
    "finetune_cifar": ["ViT_H14/jft300m/cifar10", "ViT_H14/jft300m/cifar100"],
    "finetune_pets_flowers": [
        "ViT_H14/jft300m/oxford_iiit_pet",
        "ViT_H14/jft300m/oxford_flowers102",
    ],
    "finetune_vtab": ["ViT_H14/jft300m/vtab"],
    "bit_hyperrule_small": ["BiT_R152x4/jft300m/oxford_iiit_pet"],
    "bit_hyperrule_medium_tiny_images": [
        "BiT_R152x4/jft300m/cifar10",
        "BiT_R152x4/jft300m/cifar100",
    ],
    "bit_hyperrule_large": ["BiT_R152x4/jft300m/imagenet2012"],
}
OF_TABLE_5 = {
    "finetune": ["ViT_B16/jft300m/imagenet2012"],
    "imagenet_vit": ["ViT_B16/imagenet2012/imagenet2012"],
}
# The models, on ImageNet after the recipe's epochs.
OF_TABLE_6 = {
    "jft300m_vit_b": ["ViT_B32", "ViT_B16"],
    "jft300m_vit_l32": ["ViT_L32"],
    "jft300m_vit_l16": ["ViT_L16"],
    "jft300m_vit_l16_14_epochs": ["ViT_L16"],
    "jft300m_vit_h14": ["ViT_H14"],
    "jft300m_r50": ["BiT_R50x1", "BiT_R50x2"],
    "jft300m_r101": ["BiT_R101x1"],
    "jft300m_r152": ["BiT_R152x1", "BiT_R152x2"],
    "jft300m_r50_vit_b": ["R50_B32", "R50_B16"],
    "jft300m_r50_vit_l32": ["R50_L32"],
    "jft300m_r50_vit_l16": ["R50_L16"],
    "jft300m_r50_vit_l16_14_epochs": ["R50_L16"],
}
# AugReg and the plain baselines.
OTHER_SOURCES = {"augreg_imagenet21k", "better_vit_s16_90_epochs"}


def numbers_of(recipe):
    return re.findall(r"\d+\.\d+(?= %)", ROWS[recipe].reported)


def values_of(table):
    return {row.name: row.printed for row in paper_results(table)}


@pytest.mark.parametrize(("table", "rows"), [("Table 2", OF_TABLE_2), ("Table 5", OF_TABLE_5)])
def test_accuracies_of_tables_2_and_5(table, rows):
    values = values_of(table)
    for recipe, names in rows.items():
        assert numbers_of(recipe) == [values[name] for name in names]


def test_accuracies_of_table_6():
    values = values_of("Table 6")
    for recipe, models in OF_TABLE_6.items():
        run = f"jft300m/imagenet2012/{ROWS[recipe].recipe.epochs}_epochs"
        assert numbers_of(recipe) == [values[f"{model}/{run}"] for model in models]


def test_accuracies_of_masked_patches():
    fine_tuned, from_scratch = numbers_of("masked_patches")
    assert fine_tuned == values_of("text")["ViT_B16/imagenet2012/masked_patches"]
    scratch = values_of("Table 5")["ViT_B16/imagenet2012/imagenet2012"]
    assert from_scratch == f"{float(scratch):.1f}"


def test_every_reported_accuracy_is_compared_here():
    compared = {*OF_TABLE_2, *OF_TABLE_5, *OF_TABLE_6, "masked_patches"}
    assert {name for name, row in ROWS.items() if row.reported} == compared | OTHER_SOURCES
