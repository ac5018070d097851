"""Recipes for a dataset, a model and a machine."""

import pytest

from keras_vit.models.keras_files import load_model
from keras_vit.models.variants import find_variant
from keras_vit.training import auto
from keras_vit.training.auto import RuleInputs, auto_recipe, find_rule_inputs, recipe_for_images
from tests.fixtures.small_runs import save_small_model, small_recipe, write_uneven_folder


def variant(name):
    return find_variant(name).replace(image_size=224)


VIT_B16 = variant("ViT_B16")


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
        (1_281_166, 20_000 * 512, 512),
    ],
)
def test_steps_follow_the_number_of_images(num_images, seen, batch_size):
    half = num_images // 2
    recipe = recipe_for_images(RuleInputs((half, half), 500, VIT_B16, True))
    assert recipe.batch_size == batch_size
    assert recipe.steps == seen // batch_size // 10 * 10
    # Smaller epochs than the run, so that a best model is chosen.
    assert recipe.epoch_lengths(num_images)[0] >= 5
    assert recipe.learning_rate == (0.03 if batch_size == 512 else 0.01)


@pytest.mark.parametrize(
    ("options", "is_pretrained", "side", "size"),
    [
        (VIT_B16, True, 500, 384),
        (VIT_B16, True, 300, 288),
        (VIT_B16, True, 32, 224),
        (variant("ViT_B14"), True, 500, 378),
        (variant("BiT_R50x1"), True, 500, 384),
        # Eight patches a side for random weights.
        (VIT_B16, False, 500, 384),
        (VIT_B16, False, 150, 144),
        (VIT_B16, False, 32, 128),
        (VIT_B16.replace(patch_size=4), False, 32, 32),
    ],
)
def test_resolution_follows_the_images_and_the_model(options, is_pretrained, side, size):
    inputs = RuleInputs((100, 100), side, options, is_pretrained)
    assert recipe_for_images(inputs).image_size == size


def test_uneven_classes_are_balanced():
    even, uneven = (
        recipe_for_images(RuleInputs(c, 224, VIT_B16, True)) for c in ((10, 14), (10, 20))
    )
    assert (even.class_balance, even.monitor) == ("none", None)
    assert (uneven.class_balance, uneven.monitor) == ("sampling", "val_balanced_accuracy")


def test_random_weights_are_trained_from_scratch():
    recipe = recipe_for_images(RuleInputs((10, 14), 224, VIT_B16, False))
    assert (recipe.optimizer, recipe.decay) == ("adamw", "cosine")


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
    small = "ViT_Ti16(depth=1, embedding_dim=16, mlp_dim=32, num_heads=2)"
    recipe = auto_recipe("digits", small)
    assert (recipe.batch_size, recipe.accumulation_steps) == (256, 4)


# A whole run, one of fewer steps, and one of the head alone, which a teacher does not allow.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "may_freeze", "steps", "is_frozen"),
    [
        (0.2, True, 60, False),
        (1, True, 30, False),
        (1000, True, 60, True),
        (1000, False, 20, False),
    ],
)
def test_a_run_is_made_shorter_for_the_time(
    seconds, may_freeze, steps, is_frozen, folder, model, monkeypatch
):
    monkeypatch.setattr(auto, "seconds_per_image", lambda *_: seconds)
    recipe = auto_recipe(folder, model, minutes=20, may_freeze=may_freeze)
    assert (recipe.steps, recipe.freeze) == (steps, is_frozen)


@pytest.mark.slow
def test_a_given_resolution_is_kept(folder, model, monkeypatch):
    """Also where the time is short, for which a default one gets smaller."""
    monkeypatch.setattr(auto, "seconds_per_image", lambda *_: 1000)
    assert auto_recipe(folder, model, image_size=48).image_size == 48


@pytest.mark.slow
def test_the_time_of_an_image_is_measured(model):
    recipe = small_recipe(image_size=16)
    assert 0 < auto.seconds_per_image(recipe, load_model(model), batch_size=4) < 10


def test_a_time_that_is_no_number_is_refused(folder, model):
    with pytest.raises(ValueError, match="`minutes` must be a positive number"):
        auto_recipe(folder, model, minutes=float("nan"))
