"""Recipes for a dataset, a model and a machine."""

import logging

import pytest

from keras_vit.models.keras_files import load_model
from keras_vit.models.variants import find_variant
from keras_vit.training import auto
from keras_vit.training.auto import RuleInputs, auto_recipe, find_rule_inputs, recipe_for_images
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import (
    save_small_model,
    small_recipe,
    write_uneven_folder,
)


def variant(name):
    return find_variant(name).replace(image_size=224)


VIT_B16 = variant("ViT_B16")
SMALL = "ViT_Ti16(depth=1, embedding_dim=16, mlp_dim=32, num_heads=2)"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return f"folder:{write_uneven_folder(tmp_path_factory.mktemp('photos'))}"


# Numbers of images of the paper's datasets: steps times batch of Table 4 and BiT-HyperRule, unless
# each image would be seen more than 100 times.
@pytest.mark.parametrize(
    ("num_images", "seen", "batch_size"),
    [
        (300, 30_000, 64),
        (3_680, 500 * 512, 512),
        (50_000, 5_000_000, 512),
        (1_281_167, 20_000 * 512, 512),
    ],
)
def test_steps_follow_the_number_of_images(num_images, seen, batch_size):
    recipe = recipe_for_images(
        RuleInputs((num_images // 2, num_images - num_images // 2), 500, VIT_B16, True)
    )
    assert recipe.batch_size == batch_size
    assert recipe.steps == seen // batch_size // 10 * 10
    # Smaller epochs than the run, so that a best model is chosen.
    assert recipe.epoch_lengths(num_images)[0] >= 5
    assert recipe.learning_rate == (0.03 if batch_size == 512 else 0.01)


@pytest.mark.parametrize(
    ("options", "side", "size"),
    [
        (VIT_B16, 500, 384),
        (VIT_B16, 300, 288),
        (VIT_B16, 32, 224),
        (variant("ViT_B14"), 500, 378),
        (variant("R50_B16"), 500, 384),
        (variant("BiT_R50x1"), 500, 384),
    ],
)
def test_resolution_follows_the_images_and_the_model(options, side, size):
    assert recipe_for_images(RuleInputs((100, 100), side, options, True)).image_size == size


@pytest.mark.parametrize(
    ("patch_size", "side", "size"), [(16, 500, 384), (16, 150, 144), (16, 32, 128), (4, 32, 32)]
)
def test_small_images_have_eight_patches_per_side_for_random_weights(patch_size, side, size):
    options = VIT_B16.replace(patch_size=patch_size)
    assert recipe_for_images(RuleInputs((100, 100), side, options, False)).image_size == size


def test_uneven_classes_are_balanced():
    even, uneven = (
        recipe_for_images(RuleInputs(c, 224, VIT_B16, True)) for c in ((10, 14), (10, 20))
    )
    assert (even.class_balance, even.monitor) == ("none", None)
    assert (uneven.class_balance, uneven.monitor) == ("sampling", "val_balanced_accuracy")


def test_random_weights_are_trained_from_scratch(caplog):
    with caplog.at_level(logging.INFO):
        recipe = recipe_for_images(RuleInputs((10, 14), 224, VIT_B16, False))
    assert (recipe.optimizer, recipe.decay) == ("adamw", "cosine")
    assert "random weights" in caplog.text


@pytest.mark.slow
def test_facts_are_read_from_the_data_and_the_model(folder, model):
    inputs = find_rule_inputs(folder, model)
    assert sorted(inputs.counts) == [6, 14]
    assert (inputs.side, inputs.usual_size, inputs.is_pretrained) == (16, 16, True)
    assert find_rule_inputs("digits", "ViT_Ti16").side == 8


@pytest.mark.slow
def test_a_large_batch_is_divided_if_it_does_not_fit_into_the_memory(monkeypatch):
    def seconds_per_image(recipe, model, size):
        if size > 64:
            raise MemoryError
        return 0.0001

    monkeypatch.setattr(auto, "seconds_per_image", seconds_per_image)
    assert auto_recipe("digits", SMALL).accumulation_steps == 4
    assert auto_recipe("digits", SMALL, image_size=64).accumulation_steps == 4


@pytest.mark.slow
def test_what_is_given_up_for_the_time_is_logged(folder, model, monkeypatch, caplog):
    texts = (
        (1, "of 20 minutes it gives up 30 of 60 steps"),
        (0.2, "about 8.2 minutes"),
        (1000, "frozen"),
    )
    for seconds, expected in texts:
        caplog.clear()
        monkeypatch.setattr(auto, "seconds_per_image", lambda *_, s=seconds: s)
        with caplog.at_level(logging.INFO):
            recipe = auto_recipe(folder, model, minutes=20)
        assert expected in caplog.text
        assert recipe.freeze == (seconds == 1000)
        assert ("more than the time limit" in caplog.text) == recipe.freeze


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "sizes"), [(0.0001, [32, 256]), (0.1, [32])])
def test_short_steps_are_measured_with_whole_batches(seconds, sizes, monkeypatch):
    measured = []

    def seconds_per_image(recipe, model, size):
        measured.append(size)
        return seconds

    monkeypatch.setattr(auto, "seconds_per_image", seconds_per_image)
    assert auto_recipe("digits", SMALL).batch_size == 256
    assert measured == sizes


def test_a_wrong_resolution_is_refused(folder, model):
    with pytest.raises(ValueError, match="`image_size` must be a positive number"):
        auto_recipe(folder, model, image_size=0)


@pytest.mark.slow
def test_a_given_resolution_is_kept(folder, model, monkeypatch):
    """Also where the time is short, for which a default one gets smaller."""
    monkeypatch.setattr(auto, "seconds_per_image", lambda *_: 1000)
    assert auto_recipe(folder, model, image_size=48).image_size == 48


@pytest.mark.slow
def test_a_student_needs_images(folder, model, monkeypatch):
    """A teacher takes images, so the backbone is not frozen for the time limit."""
    monkeypatch.setattr(auto, "seconds_per_image", lambda *_: 1000)
    assert not auto_recipe(folder, model, may_freeze=False).freeze


@pytest.mark.slow
def test_time_of_this_machine(model):
    assert not auto.has_accelerator()
    recipe = small_recipe(image_size=16)
    assert 0 < auto.seconds_per_image(recipe, load_model(model), batch_size=4) < 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"minutes": 0}, "`minutes` must be a positive number. Received: minutes=0"),
        ({"minutes": float("nan")}, "`minutes` must be a positive number"),
        ({"model": "ViT_B17"}, "ViT_B17"),
        ({"data": "five"}, "The split 'validation' of the folder .* must have an image"),
    ],
)
def test_wrong_arguments(changes, message, folder, model, tmp_path):
    if changes.get("data") == "five":
        write_folder(tmp_path, ("ant", "bee"), count=5)
        changes = {"data": f"folder:{tmp_path}"}
    arguments = {"data": folder, "model": model, **changes}
    with pytest.raises(ValueError, match=message):
        auto_recipe(**arguments)
