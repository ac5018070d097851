"""Crops, flips and augmentations where they would change labels."""

import types

import numpy as np
import pytest

from keras_vit.data.images.preprocessing import Augmentation
from keras_vit.data.pipeline import load
from keras_vit.data.sources.named_datasets import check_augmentation
from keras_vit.training.resumable_fit import for_evaluation
from keras_vit.training.trainer import load_training_data
from tests.fixtures.images import write_broken_folder
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


def test_crops_and_flips_are_left_out_where_they_change_the_label(asked):
    recipe = small_recipe(min_crop_area=0.05, flip="random")
    load_training_data(recipe, "vtab/clevr_count")
    assert asked[0]["min_crop_area"] is None
    assert asked[0]["flip"] is False
    load_training_data(recipe, "cifar10")
    assert (asked[2]["min_crop_area"], asked[2]["flip"]) == (0.05, True)


@pytest.mark.parametrize("upright", [False, True])
def test_both_splits_are_turned_upright(upright, asked):
    load_training_data(small_recipe(upright=upright), "cifar10")
    assert [options["upright"] for options in asked] == [upright, upright]


@pytest.mark.parametrize("name", ["vtab/dsprites_location", "cifar10"])
def test_a_crop_of_bit_is_left_out_where_it_changes_the_label(name, asked, caplog):
    caplog.set_level("INFO")
    recipe = small_recipe(random_crop_from=10, flip="always", augmentation="bit")
    load_training_data(recipe, name)
    left_out = name.startswith("vtab")
    assert asked[0]["random_crop_from"] == (None if left_out else 10)
    line = f"{name}: left out, as it would change labels: random_crop_from=10, flip='always'"
    assert caplog.messages == ([line] if left_out else [])


@pytest.mark.parametrize(
    "augmentation", ["light1", Augmentation(erasing=0.1), Augmentation(cutmix=0.1)]
)
def test_an_augmentation_that_changes_labels_is_refused(augmentation):
    message = "`augmentation` must be one of none, light0, bit, mixup for vtab/dsprites_orientation"
    with pytest.raises(ValueError, match=message):
        check_augmentation("vtab/dsprites_orientation", augmentation)
    # A digit keeps its number where it is sheared, and not where it is flipped.
    check_augmentation("vtab/svhn", augmentation)
    check_augmentation("digits", augmentation)


def test_training_data_with_an_augmentation_that_changes_labels():
    with pytest.raises(ValueError, match="for vtab/clevr_count, whose labels depend on positions"):
        load_training_data(small_recipe(augmentation="light2"), "vtab/clevr_count")


@pytest.mark.backends("jax", reason="TensorFlow's strategies divide smaller batches themselves")
def test_the_weights_of_images_that_can_be_decoded_have_the_mean_one(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.training.resumable_fit.num_replicas", lambda: 2)
    photos = write_broken_folder(tmp_path)
    dataset = load(f"folder:{photos}", "validation", 8, batch_size=8)
    weights = [weights for *_, weights in for_evaluation(dataset, 8).as_numpy_iterator()]
    assert np.count_nonzero(weights) == 18
    assert np.mean(weights) == pytest.approx(1)
