"""The table of published checkpoints: consistent, and found by name."""

import re

import pytest

from keras_vit.checkpoints.catalog import CHECKPOINTS, find_checkpoint, list_checkpoints
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.hub import ADDRESS
from keras_vit.checkpoints.catalog.published import GOOGLE_CHECKPOINTS, HUB_CHECKPOINTS
from keras_vit.models import VARIANTS

PATCHES = {variant.name: variant.stride[0] for variant in VARIANTS}
NAMES = {variant.name for variant in VARIANTS}
EACH = pytest.mark.parametrize("row", CHECKPOINTS, ids=lambda row: row.name)
GOOGLE = pytest.mark.parametrize("row", GOOGLE_CHECKPOINTS, ids=lambda row: row.name)
HUB = pytest.mark.parametrize("row", HUB_CHECKPOINTS, ids=lambda row: row.name)
AUGREG = [row for row in CHECKPOINTS if "/augreg/" in row.url]


def test_names_and_urls_are_unique():
    assert len({row.name for row in CHECKPOINTS}) == len(CHECKPOINTS)
    assert len({row.url for row in CHECKPOINTS}) == len(CHECKPOINTS)


@EACH
def test_row(row):
    assert row.variant in NAMES
    assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", row.tag)
    assert row.image_size % PATCHES.get(row.variant, 1) == 0
    assert row.num_classes in (0, 1000, 21843)
    assert row.source
    assert row.accuracy is None or (row.num_classes == 1000 and 70 < row.accuracy < 90)


@HUB
def test_row_of_the_hub(row):
    assert ADDRESS.fullmatch(row.url)["file"] is None
    assert (row.num_classes, row.accuracy is None) in ((0, True), (1000, False))
    assert row.linear_accuracy is None or 80 < row.linear_accuracy < 90
    assert row.license or "openai" in row.url
    # The patches of the variant are in the names of all repositories that name any.
    patch = re.search(r"(?:patch|vit[a-z]+)(\d\d)", row.url)
    assert patch is None or int(patch[1]) == PATCHES[row.variant]
    assert str(row.image_size) in row.url or "_224" not in row.url


@GOOGLE
def test_the_head(row):
    original = "/imagenet21k/" in row.url
    assert row.zero_head == original
    assert (row.representation_size is not None) == (original or "vit_s16_i1k" in row.url)
    assert (row.num_classes == 0) == ("siglip" in row.tag)
    assert (row.activation == "gelu") == row.tag.startswith("deit3")
    assert (row.activation == "relu") == row.variant.startswith("BiT")


@pytest.mark.parametrize("row", AUGREG, ids=lambda row: row.name)
def test_augreg_rows_are_files_of_the_release(row):
    file = parse_augreg(row.url)
    assert file.url == row.url
    assert (file.variant, file.num_classes) == (row.variant, row.num_classes)
    assert file.resolution == row.image_size
    size = "" if file.resolution == 224 else f"_{file.resolution}"
    assert row.tag == f"augreg_{file.finetune_dataset or 'imagenet21k'}{size}"


def test_rows_are_found_by_their_names():
    for row in CHECKPOINTS:
        assert find_checkpoint(row.name) is row
        assert find_checkpoint(row.name, row.variant) is row
        assert find_checkpoint(row.tag, row.variant) is row


def test_filter():
    assert list_checkpoints() == CHECKPOINTS
    assert list_checkpoints("SIGLIP2 so400m 224") == (find_checkpoint("ViT_So400m14/siglip2_224"),)
    assert list_checkpoints("l16 strong1 res_384") == (
        find_checkpoint("ViT_L16/augreg_imagenet2012_384"),
    )
    assert list_checkpoints("nothing such") == ()


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("ViT_B16/imagenet21", None),
        ("imagenet21k", None),
        ("ViT_L16/sam", "ViT_B16"),
        ("ViT_B17/imagenet21k", None),
    ],
)
def test_unknown_name(name, variant):
    with pytest.raises(ValueError, match="`name` must be .* the name of a checkpoint"):
        find_checkpoint(name, variant)
