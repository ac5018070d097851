"""The choice of settings on validation images, and its record."""

import dataclasses

import pytest

from keras_vit.experiments.grid import read_results
from keras_vit.experiments.study_run import Plan, Trained, choose_values
from keras_vit.training import Run
from keras_vit.training.callbacks import NotFiniteError
from keras_vit.training.recipe import RECIPES

# The accuracy with each learning rate and dropout; the first of two equal ones is chosen.
ACCURACIES = {(0.001, 0.0): 0.5, (0.001, 0.1): 0.75, (0.01, 0.0): None, (0.01, 0.1): 0.75}
TUNE = {"learning_rate": (0.001, 0.01), "dropout": (0.0, 0.1)}


@pytest.fixture
def tried(monkeypatch):
    """The settings that are trained, by their names and values."""
    calls = []

    def train(plan, setting, seed):
        values = tuple(setting.tuned.values())
        calls.append((setting.name, *values, seed))
        if ACCURACIES[values] is None:
            raise NotFiniteError("the loss is NaN")
        history = [{"val_accuracy": 0.9}, {"val_accuracy": ACCURACIES[values]}]
        return Trained(Run(None, history, plan.workdir, plan.recipe), 1, 1.0)

    monkeypatch.setattr("keras_vit.experiments.study_run.train_setting", train)
    return calls


def plan_of(path, models, **changes):
    recipe = dataclasses.replace(RECIPES["digits_pretrain"], seed=5, **changes)
    return Plan("scaling", recipe, "digits", path, models=models, tune=TUNE)


def test_the_best_at_the_end_of_training_is_chosen_once(tmp_path, tried):
    plan = plan_of(tmp_path, ("a",))
    (setting,) = plan.settings
    assert choose_values(plan, setting).tuned == {"learning_rate": 0.001, "dropout": 0.1}
    assert tried == [("a", *values, 5) for values in ACCURACIES]
    assert choose_values(plan, setting) == choose_values(plan, setting) and len(tried) == 4
    rows = read_results(tmp_path / "tuning" / "results.csv")
    assert [row["accuracy"] for row in rows] == [0.5, 0.75, None, 0.75]


def test_masked_patches_have_no_accuracy_to_choose_by(tmp_path, tried):
    plan = plan_of(tmp_path, ("ViT_Ti16",))
    (setting,) = plan.settings
    masked = dataclasses.replace(setting, changes={"loss": "mean_colour", "pre_logits": False})
    assert choose_values(plan, masked) is masked and not tried
