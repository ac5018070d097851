"""The choice of a learning rate."""

import dataclasses

import pytest

from keras_vit.experiments.sweep import choose_learning_rate
from keras_vit.training.callbacks import NotFiniteError
from tests.fixtures.small_runs import small_recipe


def test_the_learning_rate_is_chosen_by_the_last_epoch(tmp_path):
    accuracies = {0.3: [0.9, 0.5], 0.01: [0.6, 0.7], 0.03: [0.6, 0.7]}
    tried = []

    def train(recipe, workdir):
        tried.append(recipe.learning_rate)
        return [{"val_accuracy": accuracy} for accuracy in accuracies[recipe.learning_rate]]

    recipe = small_recipe(learning_rates=(0.3, 0.03, 0.01))
    recipe, found = choose_learning_rate(recipe, train, tmp_path)
    assert recipe.learning_rate == 0.01
    assert found == {0.01: 0.7, 0.03: 0.7, 0.3: 0.5}
    assert tried == [0.01, 0.03, 0.3]


def test_a_learning_rate_that_diverges_has_no_accuracy(tmp_path):
    def train(recipe, workdir):
        if recipe.learning_rate > 0.1:
            raise NotFiniteError("too high")
        return [{"val_accuracy": 0.0}]

    recipe, found = choose_learning_rate(
        small_recipe(learning_rates=(0.3, 0.01)), train, tmp_path / "a"
    )
    assert (recipe.learning_rate, found) == (0.01, {0.01: 0.0, 0.3: None})
    with pytest.raises(NotFiniteError, match="must not diverge.*learning rate 0.2, .* 0.3"):
        choose_learning_rate(small_recipe(learning_rates=(0.2, 0.3)), train, tmp_path / "b")


def test_a_stopped_choice_goes_on(tmp_path):
    """Learning rates that are recorded are not tried again, and other settings are refused."""
    recipe, tried = small_recipe(learning_rates=(0.01, 0.1)), []
    conditions = {"model": "a"}

    def train(recipe, workdir):
        tried.append((recipe.learning_rate, workdir))
        if len(tried) == 2:
            raise KeyboardInterrupt
        return [{"val_accuracy": recipe.learning_rate}]

    with pytest.raises(KeyboardInterrupt):
        choose_learning_rate(recipe, train, tmp_path / "sweep", conditions=conditions)
    recipe, found = choose_learning_rate(recipe, train, tmp_path / "sweep", conditions=conditions)
    assert (recipe.learning_rate, found) == (0.1, {0.01: 0.01, 0.1: 0.1})
    first, second = ((rate, tmp_path / "sweep" / f"{rate:g}") for rate in (0.01, 0.1))
    assert tried == [first, second, second]
    other = dataclasses.replace(recipe, steps=99)
    with pytest.raises(ValueError, match="begun with. Received: recipe.learning_rate=0.1"):
        choose_learning_rate(other, train, tmp_path / "sweep", conditions=conditions)
    with pytest.raises(ValueError, match="model='b' instead of 'a'"):
        choose_learning_rate(recipe, train, tmp_path / "sweep", conditions={"model": "b"})
