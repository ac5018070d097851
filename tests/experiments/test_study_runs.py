"""One run of a study: what it is trained with, which values are chosen, which model counts."""

import dataclasses

import pytest

from keras_vit.data import load
from keras_vit.data.pipeline import find_source
from keras_vit.evaluation.costs import count_training_exaflops
from keras_vit.experiments.grid import read_results
from keras_vit.experiments.study_run import (
    Plan,
    Trained,
    choose_values,
    measure_setting,
    train_setting,
    training_exaflops,
)
from keras_vit.models import find_variant
from keras_vit.training import trainer
from keras_vit.training.callbacks import NotFiniteError
from keras_vit.training.recipe import RECIPES
from tests.fixtures.small_runs import small_model, small_recipe


@pytest.mark.slow
def test_the_best_model_is_measured(tmp_path, monkeypatch):
    """Early stopping: not the last model."""
    options = {"shots": 2, "classes": ("0", "1"), "values": (1.0,)}
    plan = Plan("data-size", "digits_pretrain", "digits", tmp_path, **options)
    (setting,) = plan.settings
    best, last = (small_model(small_recipe(image_size=16), 2) for _ in range(2))
    for model, bias in ((best, 9.0), (last, -9.0)):
        model.get_layer("head").bias.assign([bias, 0.0])
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    best.save(run / "best.keras")
    trained = Trained(trainer.Run(last, [], run, RECIPES["digits_pretrain"]), 20, 1e-6)
    monkeypatch.setattr("keras_vit.experiments.study_run.train_setting", lambda *_: trained)
    found = measure_setting(plan, setting, 0)
    # The best model always predicts 0, the last 1.
    labels = [label for _, y in load("digits", "test", 16, 50, classes=("0", "1")) for label in y]
    assert found["accuracy"] == pytest.approx(1 - sum(map(int, labels)) / len(labels))
    assert found["images"] == 20 and 0 <= found["fewshot"] <= 1


@pytest.mark.slow
def test_a_share_is_trained_for_as_many_steps_as_all_images(tmp_path, monkeypatch):
    recorded = {}

    def train(recipe, model, data, workdir, **options):
        recorded.update(options)
        return trainer.Run(None, [], workdir, recipe)

    monkeypatch.setattr(trainer, "train", train)
    recipe = dataclasses.replace(RECIPES["digits_pretrain"], batch_size=50, warmup_steps=1)
    options = {"classes": ("0", "1"), "values": (0.1,)}
    plan = Plan("data-size", recipe, "digits", tmp_path, **options)
    num_images = train_setting(plan, *plan.settings, 0).num_images
    source = find_source("digits", "train", ("0", "1"))
    assert (recorded["fraction"], recorded["epoch_examples"]) == (0.1, source.num_examples)
    assert num_images == source.subset(0.1).num_examples < 50


def test_fine_tuning_takes_the_compute_of_the_model_that_it_was_given():
    """Its recipe says nothing about the pooling of a model that is there."""
    model, digits = "ViT_Ti16", find_source("digits", "train")
    built_by = dataclasses.replace(RECIPES["digits_pretrain"], pooling="gap", axial=True)
    recipe = dataclasses.replace(RECIPES["digits_finetune"], image_size=32)
    assert recipe.pooling == "token"
    counted = training_exaflops(recipe, model, digits, built_by)
    epochs, steps = recipe.epoch_lengths(digits.num_examples)
    row = find_variant(model).replace(pooling="gap", axial=True)
    expected = count_training_exaflops(row, steps * recipe.batch_size, epochs, 10, 32)
    assert counted == expected


# The accuracy with each learning rate and dropout; the first of two equal ones is chosen.
ACCURACIES = {(0.001, 0.0): 0.5, (0.001, 0.1): 0.75, (0.01, 0.0): None, (0.01, 0.1): 0.75}
TUNE = {"learning_rate": (0.001, 0.01), "dropout": (0.0, 0.1)}


def test_the_best_values_at_the_end_of_training_are_chosen_once(tmp_path, monkeypatch):
    tried = []

    def train(plan, setting, seed):
        values = tuple(setting.tuned.values())
        tried.append((setting.name, *values, seed))
        if ACCURACIES[values] is None:
            raise NotFiniteError("the loss is NaN")
        history = [{"val_accuracy": 0.9}, {"val_accuracy": ACCURACIES[values]}]
        return Trained(trainer.Run(None, history, plan.workdir, plan.recipe), 1, 1.0)

    monkeypatch.setattr("keras_vit.experiments.study_run.train_setting", train)
    recipe = dataclasses.replace(RECIPES["digits_pretrain"], seed=5)
    plan = Plan("scaling", recipe, "digits", tmp_path, models=("a",), tune=TUNE)
    (setting,) = plan.settings
    assert choose_values(plan, setting).tuned == {"learning_rate": 0.001, "dropout": 0.1}
    assert tried == [("a", *values, 5) for values in ACCURACIES]
    assert choose_values(plan, setting) == choose_values(plan, setting) and len(tried) == 4
    rows = read_results(tmp_path / "tuning" / "results.csv")
    assert [row["accuracy"] for row in rows] == [0.5, 0.75, None, 0.75]
    # Masked patches have no accuracy to choose by.
    masked = dataclasses.replace(setting, changes={"loss": "mean_color", "pre_logits": False})
    assert choose_values(plan, masked) is masked and len(tried) == 4
