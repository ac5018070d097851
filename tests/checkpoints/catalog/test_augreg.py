"""The grammar of AugReg's file names."""

import itertools

import pytest

from keras_vit.checkpoints.catalog.augreg import (
    FINETUNE_DATASETS,
    MODELS,
    STEPS,
    AugRegFile,
    parse_augreg,
)

PRETRAINED = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
FINETUNED = f"{PRETRAINED}--imagenet2012-steps_20k-lr_0.03-res_384"

PURE = ("Ti_16", "S_32", "S_16", "B_32", "B_16", "B_8", "L_16")
HYBRIDS = {"R_Ti_16": "R_Ti16", "R26_S_32": "R26_S32", "R50_L_32": "R50_L32"}
VARIANTS = {**{model: f"ViT_{model.replace('_', '')}" for model in PURE}, **HYBRIDS}


def test_pretrained_file():
    file = parse_augreg(PRETRAINED)
    assert file == AugRegFile("B_16", "i21k", 300, 0.001, "medium1", 0.1, 0.0, 0.0)
    assert (file.variant, file.num_classes, file.resolution) == ("ViT_B16", 21843, 224)
    assert file.url == f"gs://vit_models/augreg/{PRETRAINED}.npz"


def test_finetuned_file():
    file = parse_augreg(FINETUNED)
    settings = (file.finetune_dataset, file.finetune_steps, file.finetune_lr)
    assert settings == ("imagenet2012", 20_000, 0.03)
    assert (file.variant, file.num_classes, file.resolution) == ("ViT_B16", 1000, 384)


@pytest.mark.parametrize("name", [PRETRAINED, FINETUNED])
def test_suffix_and_directory_are_optional(name):
    expected = parse_augreg(name)
    assert parse_augreg(f"{name}.npz") == expected
    assert parse_augreg(expected.url) == expected
    assert parse_augreg(f"/tmp/{name}.npz") == expected


def test_models_and_their_builders():
    assert set(VARIANTS) == set(MODELS)
    for model, variant in VARIANTS.items():
        assert parse_augreg(PRETRAINED.replace("B_16", model)).variant == variant


def test_every_name_is_had_back():
    rates = ("0.001", "0.003", "0.01", "0.03")
    for dataset, steps, lr, size in itertools.product(FINETUNE_DATASETS, STEPS, rates, (224, 384)):
        name = f"{PRETRAINED}--{dataset}-steps_{steps}-lr_{lr}-res_{size}"
        assert parse_augreg(name).file_name == name


@pytest.mark.parametrize(
    ("dataset", "num_classes"),
    [("cifar100", 100), ("oxford_iiit_pet", 37), ("resisc45", 45), ("kitti", 4)],
)
def test_classes(dataset, num_classes):
    assert parse_augreg(FINETUNED.replace("imagenet2012", dataset)).num_classes == num_classes
    assert parse_augreg(PRETRAINED.replace("i21k", "i1k")).num_classes == 1000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i21k", "jft"),
        ("300ep", "0300ep"),
        ("lr_0.001", "lr_nan"),
        ("imagenet2012", "imagenet"),
        ("res_384", "res_512"),
        ("-res_384", ""),
    ],
)
def test_wrong_part(old, new):
    name = FINETUNED.replace(old, new)
    with pytest.raises(ValueError, match="`name` must be that of an AugReg file"):
        parse_augreg(name)
