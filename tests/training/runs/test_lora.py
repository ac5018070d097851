"""Runs of recipes with LoRA: what they train, save and resume."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models.surgery import lora_layers
from keras_vit.training.optimizers import AdamW
from keras_vit.training.starting_model import make_model
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.small_runs import CLASSES, small_fit, small_model, small_recipe
from tests.fixtures.stopped import assert_same_variables, stopped
from tests.fixtures.tiny import images

pytestmark = pytest.mark.backends("tensorflow", reason="recipes train the same on every backend")
SETTINGS = {"lora_rank": 2, "lora_alpha": 4.0, "layer_decay": 0.9, "ema_momentum": 0.5}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    path = tmp_path_factory.mktemp("pretrained") / "model.keras"
    model = small_model(small_recipe(), num_classes=4, depth=2)
    randomise(model)
    model.save(path)
    return path


def made(recipe, path):
    model = make_model(recipe, path, len(CLASSES))
    # `.keras` files keep whole layers frozen, so that no variable is lost.
    assert {w.path.split("/")[0] for w in model.trainable_weights} >= {"block_1", "head"}
    return model


@pytest.mark.slow
def test_a_run_trains_saves_and_resumes(pretrained, tmp_path):
    recipe = small_recipe(optimizer="adamw", learning_rate=0.01, weight_decay=0.1, **SETTINGS)
    model = made(recipe, pretrained)
    assert [(part.lora_rank, part.lora_alpha) for part in lora_layers(model)] == 12 * [(2, 4.0)]
    base = {weight.path: to_numpy(weight) for weight in model.non_trainable_weights}
    small_fit(tmp_path / "run", recipe, model)
    assert all(to_numpy(part.lora_kernel_b).any() for part in lora_layers(model))
    for weight in model.non_trainable_weights:
        np.testing.assert_array_equal(to_numpy(weight), base[weight.path])
    # The model of the run has the averages at the end.
    x = images(4, 8, 8, 3)
    loaded = keras.models.load_model(tmp_path / "run" / "averaged.keras", compile=False)
    assert [w.path for w in loaded.trainable_weights] == [w.path for w in model.trainable_weights]
    np.testing.assert_array_equal(to_numpy(loaded(x)), to_numpy(model(x)))
    with stopped(4):
        small_fit(tmp_path / "stopped", recipe, made(recipe, pretrained))
    again = made(recipe, pretrained)
    small_fit(tmp_path / "stopped", recipe, again, resume=True)
    assert_same_variables(model.weights, again.weights)


@pytest.mark.slow
def test_a_tuned_model_is_merged_before_the_next_run(pretrained, tmp_path):
    recipe = small_recipe(lora_rank=2)
    tuned = make_model(recipe, pretrained, 3)
    for part in lora_layers(tuned):
        part.lora_kernel_b.assign(np.full(part.lora_kernel_b.shape, 0.1))
    tuned.save(tmp_path / "tuned.keras")
    x = images(4, 8, 8, 3)
    expected = to_numpy(keras_vit.replace_head(tuned, 0)(x))
    again = make_model(recipe, tmp_path / "tuned.keras", 3)
    features = keras_vit.replace_head(again, 0)
    np.testing.assert_allclose(to_numpy(features(x)), expected, atol=1e-5)
    assert not lora_layers(make_model(small_recipe(), tmp_path / "tuned.keras", 3))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantized_base_stays_quantized(pretrained, mode, tmp_path):
    base = keras_vit.quantize(keras.models.load_model(pretrained), mode)
    base.save(tmp_path / "base.keras")
    tuned = made(small_recipe(lora_rank=2), tmp_path / "base.keras")
    kernels = {weight.path: to_numpy(weight) for weight in base.weights}
    for part in lora_layers(tuned):
        assert part.quantization_mode == mode
        np.testing.assert_array_equal(to_numpy(part._kernel), kernels[part._kernel.path])


def test_frozen_blocks(pretrained):
    model = make_model(small_recipe(lora_rank=2, frozen_blocks=1), pretrained, 3)
    assert {w.path.split("/")[0] for w in model.trainable_weights} == {"block_1", "head"}
    assert all(w.name.startswith("lora") for w in model.trainable_weights[:12])


@pytest.mark.slow
def test_weight_decay_and_layer_decay(pretrained):
    """Both matrices decay as kernels do, at the rate of their block; nothing else does."""
    model = make_model(small_recipe(lora_rank=2), pretrained, 3)
    optimizer = AdamW(0.1, weight_decay=0.5, layer_decay=0.5)
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    optimizer.build(variables)
    optimizer.apply([np.zeros(v.shape, "float32") for v in variables], variables)
    rates = {"block_0": 0.25, "block_1": 0.5, "head": 1}
    for variable in variables:
        is_decayed = "kernel" in variable.name
        expected = 1 - 0.1 * 0.5 * rates[variable.path.split("/")[0]] * is_decayed
        np.testing.assert_allclose(to_numpy(variable), expected, rtol=1e-6)
