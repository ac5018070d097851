"""The choice of a learning rate."""

import dataclasses

import pytest

from keras_vit.experiments.sweep import choose_learning_rate, sweep
from keras_vit.training.callbacks import NotFiniteError
from tests.fixtures.small_runs import small_model, small_recipe


def test_the_learning_rate_is_chosen_by_the_last_epoch(caplog):
    caplog.set_level("INFO", "keras_vit")
    accuracies = {0.3: [0.9, 0.5], 0.01: [0.6, 0.7], 0.03: [0.6, 0.7]}
    tried = []

    def train(recipe):
        tried.append(recipe.learning_rate)
        return [{"val_accuracy": accuracy} for accuracy in accuracies[recipe.learning_rate]]

    recipe, found = choose_learning_rate(small_recipe(learning_rates=(0.3, 0.03, 0.01)), train)
    assert recipe.learning_rate == 0.01
    assert found == {0.01: 0.7, 0.03: 0.7, 0.3: 0.5}
    assert "the learning rates 0.01, 0.03 are equally good: the smallest is taken" in caplog.text
    assert tried == [0.01, 0.03, 0.3]
    with pytest.raises(ValueError, match="A sweep needs `learning_rates`"):
        choose_learning_rate(dataclasses.replace(recipe, learning_rates=()), train)


def test_a_learning_rate_that_diverges_has_no_accuracy():
    def train(recipe):
        if recipe.learning_rate > 0.1:
            raise NotFiniteError("too high")
        return [{"val_accuracy": 0.0}]

    recipe, found = choose_learning_rate(small_recipe(learning_rates=(0.3, 0.01)), train)
    assert (recipe.learning_rate, found) == (0.01, {0.01: 0.0, 0.3: None})
    with pytest.raises(NotFiniteError, match="must not diverge.*learning_rates=[(]0.2, 0.3"):
        choose_learning_rate(small_recipe(learning_rates=(0.2, 0.3)), train)
    with pytest.raises(ValueError, match="must differ in their first 6 digits"):
        choose_learning_rate(small_recipe(learning_rates=(0.01, 0.010000001)), train)


def test_each_learning_rate_starts_from_the_same_weights(tmp_path):
    recipe = dataclasses.replace(small_recipe(), learning_rates=(0.01, 0.03))
    with pytest.raises(ValueError, match="`model` must be a name or a path.*built model"):
        sweep(recipe, small_model(recipe), "digits", tmp_path / "run")
