"""Crops, flips and augmentations where they would change labels."""

import types

import pytest

from keras_vit.data.images.preprocessing import Augmentation
from keras_vit.data.sources.named_datasets import check_augmentation
from keras_vit.training.trainer import load_training_data
from tests.fixtures.small_runs import small_recipe


@pytest.fixture
def asked(monkeypatch):
    """The options of the calls of `load`, which loads nothing."""
    calls = []
    nothing = types.SimpleNamespace(info=types.SimpleNamespace(dataset=None))
    monkeypatch.setattr(
        "keras_vit.training.trainer.load", lambda *a, **options: calls.append(options) or nothing
    )
    monkeypatch.setattr("keras_vit.training.trainer._for_recipe", lambda *arguments: arguments)
    return calls


@pytest.mark.parametrize("name", ["vtab/clevr_count", "cifar10"])
def test_crops_and_flips_are_left_out_where_they_change_the_label(name, asked):
    load_training_data(small_recipe(min_crop_area=0.05, flip="random"), name)
    load_training_data(small_recipe(random_crop_from=10, flip="always"), name)
    found = [(o["min_crop_area"], o["random_crop_from"], o["flip"]) for o in asked[::2]]
    if name == "cifar10":
        assert found == [(0.05, None, True), (None, 10, "always")]
    else:
        assert found == [(None, None, False), (None, None, False)]


@pytest.mark.parametrize(
    "augmentation", ["light1", Augmentation(erasing=0.1), Augmentation(cutmix=0.1)]
)
def test_an_augmentation_that_changes_labels_is_refused(augmentation):
    message = "`augmentation` must be one of none, light0, bit, mixup"
    with pytest.raises(ValueError, match=message):
        check_augmentation("vtab/dsprites_orientation", augmentation)
    # A digit keeps its number where it is sheared, and not where it is flipped.
    check_augmentation("vtab/svhn", augmentation)
    check_augmentation("digits", augmentation)


def test_training_data_with_an_augmentation_that_changes_labels_are_refused():
    with pytest.raises(ValueError, match="for vtab/clevr_count, whose labels depend on positions"):
        load_training_data(small_recipe(augmentation="light2"), "vtab/clevr_count")
