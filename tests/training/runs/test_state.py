"""The names of the variables in a state, and states that do not fit a model."""

import keras
import numpy as np
import pytest

from keras_vit.training.optimizers import averages_of, make_optimizer
from keras_vit.training.recipe import KERAS_OPTIMIZERS
from keras_vit.training.states import States, named_metrics, named_variables, restore
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import small_model, small_recipe
from tests.fixtures.tiny import images

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")
RECIPE = small_recipe(ema_momentum=0.9, accumulation_steps=2)


def composed():
    """A model whose layers have the names that Keras gives them."""
    inputs = keras.Input((8, 8, 3))
    tower = keras.Sequential([keras.layers.Conv2D(2, 3), keras.layers.Flatten()])
    hidden = keras.layers.Dropout(0.5)(keras.layers.Dense(4)(tower(inputs)))
    return keras.Model(inputs, keras.layers.Dense(3)(hidden))


def trained(build):
    """A model after a step, with the metrics of that step."""
    model = build()
    optimizer = make_optimizer(RECIPE, model, 10)
    model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=True)
    model.train_on_batch(images(4, 8, 8, 3), np.arange(4) % 3)
    return model


def state_of(model, tmp_path):
    """Save a state of the model, and return its arrays."""
    States(tmp_path, keep=1).save(model, 1, {})
    return States(tmp_path, keep=1).load()[0]


MODELS = {"built": lambda: small_model(RECIPE, dropout=0.1), "composed": composed}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["built", pytest.param("composed", marks=pytest.mark.large)])
def test_a_state_is_restored_after_other_models_were_built(name, tmp_path):
    model = trained(MODELS[name])
    arrays = state_of(model, tmp_path)
    for build in MODELS.values():
        build()
    other = trained(MODELS[name])
    assert {v.path for v in model.variables} != {v.path for v in other.variables}
    metrics = restore(other, arrays)
    saved, restored = named_variables(model), named_variables(other)
    assert list(restored) == list(saved)
    for key, variable in restored.items():
        np.testing.assert_array_equal(to_numpy(variable.value), to_numpy(saved[key].value), key)
    assert list(metrics) == list(named_metrics(model))
    assert list(metrics) == ["metrics/loss/total", "metrics/loss/count"]


@pytest.mark.parametrize("name", KERAS_OPTIMIZERS)
def test_states_of_keras_optimizers_have_the_same_names_after_other_models(name):
    recipe, names = small_recipe(optimizer=name, ema_momentum=0.9), []
    for _ in range(2):
        model = composed()
        model.compile(make_optimizer(recipe, model, 10))
        model.optimizer.build(model.trainable_variables)
        names.append([*named_variables(model)])
        assert len(averages_of(model)) == len(model.trainable_variables)
    assert names[0] == names[1]


@pytest.mark.parametrize("change", ["missing", "extra", "other shape"])
def test_a_state_of_another_model_is_refused(change, tmp_path):
    model = trained(MODELS["built"])
    arrays, key = state_of(model, tmp_path), "model/head/kernel"
    if change == "missing":
        del arrays[key]
    else:
        key = {"extra": "model/mlp/bias"}.get(change, key)
        arrays[key] = np.ones(3)
    arrays["model/encoder_norm/gamma"] = np.full(8, 9)
    before = model.get_weights()
    with pytest.raises(ValueError, match=f"`model` must be the model .*: {key}$"):
        restore(model, arrays)
    for value, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_paths_that_repeat_have_names_of_their_own():
    """Those of two models in one."""
    inputs = keras.Input((2,))
    towers = [keras.Model(inputs, keras.layers.Dense(1, name="head")(inputs)) for _ in range(2)]
    model = keras.Model(inputs, keras.layers.Add()([tower(inputs) for tower in towers]))
    model.compile(keras.optimizers.SGD(momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    named = named_variables(model)
    assert len(named) == len(model.variables) + len(model.optimizer.variables)
    assert {"model/head/kernel", "model/head/kernel:2"} <= set(named)
