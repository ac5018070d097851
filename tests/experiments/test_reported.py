"""Reported accuracies, compared only with the models and datasets that they are for."""

import dataclasses
import types

import pytest

import keras_vit
from keras_vit.checkpoints import find_checkpoint
from keras_vit.data import DATASETS
from keras_vit.experiments import reported
from keras_vit.experiments.reported import (
    OF_CHECKPOINTS,
    TABLE_2,
    VTAB,
    builder_of,
    check_meant,
    find_reported,
    reported_of_checkpoint,
)
from keras_vit.models import find_variant
from keras_vit.training.recipe import ROWS

TINY = "ViT_Ti16/augreg_imagenet2012_384"


@pytest.fixture(scope="module")
def tiny():
    return keras_vit.ViT_Ti16(num_classes=1000, image_size=384)


@pytest.fixture
def large(monkeypatch):
    """Stand in for a ViT-L/16, without its 300 million parameters."""
    monkeypatch.setattr(reported, "builder_of", lambda model: model.builder)
    return types.SimpleNamespace(builder="ViT_L16", input_shape=(None, 384, 384, 3))


def test_a_checkpoint_is_found_by_its_name(tiny):
    row = find_checkpoint(TINY)
    for source in (TINY, row.url):
        found = reported_of_checkpoint(source, tiny, "imagenet2012")
        assert (found.name, found.accuracy) == (TINY, 78.22)
        for data in ("imagenet2012_real", "cifar10", "folder:imagenet2012", "tfds:imagenet2012"):
            assert reported_of_checkpoint(source, tiny, data) is None
    for other in ("tiny.npz", ".", row.url.replace("lr_0.03", "lr_0.01")):
        assert reported_of_checkpoint(other, tiny, "imagenet2012") is None


@pytest.mark.parametrize("options", [{"num_classes": 10}, {"image_size": 224}, {"qk_norm": True}])
def test_a_model_that_only_has_the_name(options):
    model = keras_vit.ViT_Ti16(**{"num_classes": 1000, "image_size": 384, **options})
    assert reported_of_checkpoint(TINY, model, "imagenet2012") is None


def test_a_row_that_is_not_meant(large):
    row = find_reported("ViT_L16/jft300m/cifar10")
    check_meant(row, large, "cifar10", 10)
    check_meant(row, large, "folder:cifar", 10)
    for name, data, message in (
        ("ViT_H14/jft300m/cifar10", "cifar10", "the model's architecture, ViT_L16"),
        ("ViT_L16/jft300m/cifar100", "cifar10", "a row of the dataset, cifar10"),
        ("ViT_L16/jft300m/cifar100", "folder:cifar", "its number of classes, 10.*of 100"),
        ("ViT_L16/jft300m/vtab", "vtab/svhn", "a row of the dataset, vtab/svhn"),
        ("ViT_L16/jft300m/vtab", "folder:vtab", "its number of classes, 10.*of None"),
    ):
        with pytest.raises(ValueError, match=message):
            check_meant(find_reported(name), large, data, 10)


@pytest.mark.slow
def test_options_make_another_builder():
    model = keras_vit.ViT_Ti16(10, 32, pooling="map", num_registers=4, qk_norm=True)
    assert builder_of(model) == "ViT_Ti16(num_registers=4, pooling='map', qk_norm=True)"
    assert builder_of(keras_vit.ViT_Ti16(10, 32, dropout=0.1, activation="gelu")) == "ViT_Ti16"
    model = keras_vit.ViT_Ti16(10, 32, pooling="gap", class_token=True)
    assert builder_of(model) == "ViT_Ti16(class_token=True, pooling='gap')"
    row = dataclasses.replace(find_reported("ViT_L16/jft300m/cifar10"), builder="ViT_Ti16")
    with pytest.raises(ValueError, match="architecture, ViT_Ti16.class_token=True"):
        check_meant(row, model, "cifar10", 10)


def test_the_plain_baselines_have_options():
    """The models of arXiv 2205.01580 with the reported accuracies have these options."""
    options = {"pooling": "gap", "position_embedding": "sincos2d", "representation_size": 384}
    model = keras_vit.ViT_S16(num_classes=1000, image_size=224, **options)
    found = reported_of_checkpoint("ViT_S16/imagenet2012_90ep", model, "imagenet2012")
    assert found.builder == builder_of(model)


def test_table_2_names_what_there_is():
    assert len({row.name for row in TABLE_2 + OF_CHECKPOINTS}) == len(TABLE_2 + OF_CHECKPOINTS)
    assert len(TABLE_2) == 7 * 4
    for row in TABLE_2:
        assert (
            row.name == f"{find_variant(row.builder).name}/{row.name.split('/')[1]}/{row.dataset}"
        )
        assert row.dataset in DATASETS or row.dataset == VTAB


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


def test_a_comparison_is_one_line():
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
