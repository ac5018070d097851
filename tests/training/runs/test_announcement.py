"""What a run says before it begins."""

import dataclasses
import logging

import pytest

from keras_vit.training import RECIPES, load_training_data
from keras_vit.training.runs.announcement import announce
from tests.fixtures.small_runs import small_model

RECIPE = dataclasses.replace(
    RECIPES["finetune"], image_size=8, batch_size=32, steps=50, warmup_steps=5
)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "classes"), [("softmax", None), ("pixels", ("3", "5", "7"))])
def test_many_images_or_no_accuracy(loss, classes, caplog):
    recipe = dataclasses.replace(RECIPE, loss=loss, head_bias=0.0)
    datasets = load_training_data(recipe, "digits", classes=classes)
    with caplog.at_level(logging.INFO, "keras_vit"):
        announce(recipe, *datasets, "ViT_Ti16", datasets[0].num_examples)
    assert not any("each validation image" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("ViT_Ti16", "ViT_Ti16 with random weights: this is training from scratch"),
        ("runs/photos", "weights of runs/photos, with a new head"),
        ("ViT_B16/imagenet21k", "weights of ViT_B16/imagenet21k"),
        (None, "a model with its own weights"),
    ],
)
def test_a_run_says_what_it_will_do(model, words, caplog):
    datasets = load_training_data(RECIPE, "digits", classes=("3", "5", "7"))
    with caplog.at_level(logging.INFO, "keras_vit"):
        announce(RECIPE, *datasets, model or small_model(RECIPE, 3), datasets[0].num_examples)
    data, weights, length, few = (record.getMessage() for record in caplog.records)
    count, validation = (dataset.source.num_examples for dataset in datasets)
    assert few.startswith(f"each validation image is {100 / validation:.1f} % of the accuracy")
    assert data == f"{count} images to train on, {validation} to validate on; 3 classes: 3, 5, 7"
    assert words in weights
    epochs, steps = RECIPE.epoch_lengths(count)
    assert length == (
        f"{epochs * steps} steps of 32 images, in {epochs} epochs of {steps} steps; "
        "validation after each epoch"
    )


@pytest.mark.parametrize("balance", ["none", "sampling"])
def test_batches_of_more_images_than_there_are(balance, caplog):
    recipe = dataclasses.replace(RECIPE, batch_size=512, class_balance=balance)
    datasets = load_training_data(recipe, "digits", classes=("3", "5", "7"))
    with caplog.at_level(logging.INFO, "keras_vit"):
        announce(recipe, *datasets, "ViT_Ti16", datasets[0].num_examples)
    assert any("more images than there are to train on" in line for line in caplog.messages)
    assert (" to train on (rare classes repeated), " in caplog.messages[0]) == (
        balance == "sampling"
    )


def test_a_run_of_very_many_passes_says_so(caplog):
    recipe = dataclasses.replace(RECIPE, steps=20_000)
    datasets = load_training_data(recipe, "digits", classes=("3", "5", "7"))
    with caplog.at_level(logging.INFO, "keras_vit"):
        announce(recipe, *datasets, "ViT_Ti16", datasets[0].num_examples)
    passes = 20_000 * 32 // datasets[0].num_examples
    assert any(line.startswith(f"each image is seen {passes:,} times") for line in caplog.messages)


def test_a_run_says_which_model_and_head_it_starts_from(tmp_path, caplog):
    (tmp_path / "run.json").write_text("{}")
    small_model(RECIPE, 3).save(tmp_path / "best.keras")
    datasets = load_training_data(RECIPE, "digits", classes=("3", "5", "7"))
    with caplog.at_level(logging.INFO, "keras_vit"):
        announce(RECIPE, *datasets, str(tmp_path), datasets[0].num_examples, keep_head=True)
    assert f"weights of {tmp_path / 'best.keras'}, with their head" in caplog.messages


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"lora_rank": 4}, "only LoRA of rank 4 and the head are trained"),
        ({"freeze": True, "flip": "never", "min_crop_area": None}, "only the head is trained, on"),
        ({"frozen_blocks": 2}, "the embeddings and the first 2 blocks are not trained"),
        ({"unfreeze_steps": 9}, "first the head is trained, and one more block after every 9 "),
    ],
)
def test_a_run_says_what_it_trains(changes, text, caplog):
    datasets = load_training_data(RECIPE, "digits", classes=("3", "5", "7"))
    plain, changed = RECIPE, dataclasses.replace(RECIPE, **changes)
    # The settings are not those of a built model, but that its features may be computed once.
    is_of_built = "freeze" in changes
    for recipe, model, is_said in (
        (changed, "ViT_Ti16", True),
        (plain, "ViT_Ti16", False),
        (changed, small_model(RECIPE, 3), is_of_built),
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO, "keras_vit"):
            announce(recipe, *datasets, model, datasets[0].num_examples)
        assert any(line.startswith(text) for line in caplog.messages) == is_said
