"""The table of reported accuracies."""

import pytest

from keras_vit.checkpoints import find_checkpoint
from keras_vit.data import DATASETS
from keras_vit.experiments.reported import (
    COLUMNS,
    OF_CHECKPOINTS,
    TABLE_2,
    VTAB,
    comparison_rows,
    find_reported,
)
from keras_vit.models import find_variant
from keras_vit.training.recipes import RECIPES, ROWS

TINY = "ViT_Ti16/augreg_imagenet2012_384"


def test_table_2_names_what_there_is():
    assert len({row.name for row in TABLE_2 + OF_CHECKPOINTS}) == len(TABLE_2 + OF_CHECKPOINTS)
    assert len(TABLE_2) == 7 * 4
    for row in TABLE_2:
        assert (
            row.name == f"{find_variant(row.builder).name}/{row.name.split('/')[1]}/{row.dataset}"
        )
        assert row.dataset in DATASETS or row.dataset == VTAB
        assert (row.recipe is None) == (row.starts_from is None)
        if row.recipe is not None:
            assert find_checkpoint(row.starts_from).variant == row.builder
            assert row.recipe in RECIPES


def test_table_2_says_what_the_recipes_say():
    """The recipes record the same accuracies."""
    for recipe, name in (
        ("finetune_imagenet_512", "ViT_L16/jft300m/imagenet2012"),
        ("finetune_imagenet_518", "ViT_H14/jft300m/imagenet2012"),
        ("finetune_cifar", "ViT_H14/jft300m/cifar100"),
        ("finetune_pets_flowers", "ViT_H14/jft300m/oxford_flowers102"),
        ("finetune_vtab", "ViT_H14/jft300m/vtab"),
        ("bit_hyperrule_large", "BiT_R152x4/jft300m/imagenet2012"),
        ("pretrain", "ViT_L16/imagenet21k/imagenet2012"),
    ):
        assert f"{find_reported(name).accuracy:.2f} %" in ROWS[recipe].reported


def test_a_table_of_comparisons():
    rows = list(comparison_rows({"BiT_R152x4/jft300m/imagenet2012_real": 0.9, TINY: 0.7825}))
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert rows[0][1:] == ("90.00 %", "90.54 %", "-0.54")
    assert rows[1][1:] == ("78.25 %", "78.22 %", "+0.03")
    line = find_reported("ViT_H14/jft300m/cifar10").compare(0.996)
    assert line.startswith("accuracy 99.60 %, reported 99.50 +- 0.06 % (ViT_H14/jft300m/cifar10, ")
    assert line.endswith("difference +0.10")


def test_a_name_that_is_none():
    with pytest.raises(ValueError, match=r"such as ViT_L16/jft300m/cifar10.*'ViT_L16/jft/cifar10'"):
        find_reported("ViT_L16/jft/cifar10")


def test_another_resolution_or_crop_is_named():
    row = find_reported("ViT_L16/jft300m/imagenet2012")
    assert row.compare(0.9, (512, 512)).endswith("difference +2.24")
    assert row.compare(0.9, (224, 224), 256).endswith(
        "difference +2.24; measured on images of 224x224 pixels instead of 512x512; "
        "measured on central crops from 256 pixels"
    )
    assert find_reported(TINY).image_size == 384
