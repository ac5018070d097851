"""What recipes say that the paper reports is in the paper's tables."""

import re

import pytest

from keras_vit.experiments.paper_results import paper_results
from keras_vit.training.recipe import ROWS

AFTER_7, AFTER_14 = (f"jft300m/imagenet2012/{epochs}_epochs" for epochs in (7, 14))
# Per recipe the table and the rows whose values stand in `reported`, in its order.
COMPARED = {
    "pretrain": ("Table 2", "ViT_L16/imagenet21k/imagenet2012"),
    "finetune_imagenet_512": ("Table 2", "ViT_L16/jft300m/imagenet2012"),
    "finetune_imagenet_518": ("Table 2", "ViT_H14/jft300m/imagenet2012"),
    "finetune_cifar": ("Table 2", "ViT_H14/jft300m/cifar10", "ViT_H14/jft300m/cifar100"),
    "finetune_pets_flowers": (
        *("Table 2", "ViT_H14/jft300m/oxford_iiit_pet", "ViT_H14/jft300m/oxford_flowers102"),
    ),
    "finetune_vtab": ("Table 2", "ViT_H14/jft300m/vtab"),
    "bit_hyperrule_small": ("Table 2", "BiT_R152x4/jft300m/oxford_iiit_pet"),
    "bit_hyperrule_medium_tiny_images": (
        *("Table 2", "BiT_R152x4/jft300m/cifar10", "BiT_R152x4/jft300m/cifar100"),
    ),
    "bit_hyperrule_large": ("Table 2", "BiT_R152x4/jft300m/imagenet2012"),
    "finetune": ("Table 5", "ViT_B16/jft300m/imagenet2012"),
    "imagenet_vit": ("Table 5", "ViT_B16/imagenet2012/imagenet2012"),
    "jft300m_vit_b": ("Table 6", f"ViT_B32/{AFTER_7}", f"ViT_B16/{AFTER_7}"),
    "jft300m_vit_l32": ("Table 6", f"ViT_L32/{AFTER_7}"),
    "jft300m_vit_l16": ("Table 6", f"ViT_L16/{AFTER_7}"),
    "jft300m_vit_l16_14_epochs": ("Table 6", f"ViT_L16/{AFTER_14}"),
    "jft300m_vit_h14": ("Table 6", f"ViT_H14/{AFTER_14}"),
    "jft300m_r50": ("Table 6", f"BiT_R50x1/{AFTER_7}", f"BiT_R50x2/{AFTER_7}"),
    "jft300m_r101": ("Table 6", f"BiT_R101x1/{AFTER_7}"),
    "jft300m_r152": ("Table 6", f"BiT_R152x1/{AFTER_7}", f"BiT_R152x2/{AFTER_7}"),
    "jft300m_r50_vit_b": ("Table 6", f"R50_B32/{AFTER_7}", f"R50_B16/{AFTER_7}"),
    "jft300m_r50_vit_l32": ("Table 6", f"R50_L32/{AFTER_7}"),
    "jft300m_r50_vit_l16": ("Table 6", f"R50_L16/{AFTER_7}"),
    "jft300m_r50_vit_l16_14_epochs": ("Table 6", f"R50_L16/{AFTER_14}"),
}
# AugReg, the plain baselines, and the text of the paper.
OTHER_SOURCES = {"augreg_imagenet21k", "better_vit_s16_90_epochs", "masked_patches"}


def values_of(table):
    return {row.name: row.printed for row in paper_results(table)}


def numbers_of(recipe):
    return re.findall(r"\d+\.\d+(?= %)", ROWS[recipe].reported)


@pytest.mark.parametrize("recipe", COMPARED)
def test_accuracies_are_those_of_the_tables(recipe):
    table, *names = COMPARED[recipe]
    assert numbers_of(recipe) == [values_of(table)[name] for name in names]
    if table == "Table 6":
        assert names[0].endswith(f"/{ROWS[recipe].recipe.epochs}_epochs")


def test_accuracies_of_masked_patches_are_those_of_the_text():
    fine_tuned, from_scratch = numbers_of("masked_patches")
    assert fine_tuned == values_of("text")["ViT_B16/imagenet2012/masked_patches"]
    scratch = values_of("Table 5")["ViT_B16/imagenet2012/imagenet2012"]
    assert from_scratch == f"{float(scratch):.1f}"


def test_every_reported_accuracy_is_compared_here():
    assert {name for name, row in ROWS.items() if row.reported} == {*COMPARED, *OTHER_SOURCES}
