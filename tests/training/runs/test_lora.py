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
    history = small_fit(tmp_path / "run", recipe, model)
    assert np.isfinite(history[-1]["loss"])
    assert all(to_numpy(part.lora_kernel_b).any() for part in lora_layers(model))
    for weight in model.non_trainable_weights:
        np.testing.assert_array_equal(to_numpy(weight), base[weight.path])
    # The model of the run has the averages at the end.
    x = images(4, 8, 8, 3)
    for name, expected in {"averaged": model, "best": None, "last": None}.items():
        loaded = keras.models.load_model(tmp_path / "run" / f"{name}.keras", compile=False)
        assert len(lora_layers(loaded)) == 12
        assert [w.path for w in loaded.trainable_weights] == [
            weight.path for weight in model.trainable_weights
        ]
        if expected is not None:
            np.testing.assert_array_equal(to_numpy(loaded(x)), to_numpy(expected(x)))

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                raise RuntimeError

    resumed = made(recipe, pretrained)
    fit = resumed.fit
    resumed.fit = lambda *a, callbacks, **k: fit(*a, callbacks=[*callbacks, Stop()], **k)
    with pytest.raises(RuntimeError):
        small_fit(tmp_path / "stopped", recipe, resumed, save_steps=2)
    again = made(recipe, pretrained)
    small_fit(tmp_path / "stopped", recipe, again, save_steps=2, resume=True)
    for weight, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other), weight.path)


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
    plain = make_model(small_recipe(), tmp_path / "tuned.keras", 3)
    assert lora_layers(plain) == [] and len(plain.trainable_weights) == len(plain.weights)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param("int8", marks=pytest.mark.examples), "int4"])
def test_a_quantized_base_stays_quantized(pretrained, mode, tmp_path, caplog):
    base = keras_vit.quantize(keras.models.load_model(pretrained), mode)
    base.save(tmp_path / "base.keras")
    recipe = small_recipe(lora_rank=2, steps=4)
    tuned = made(recipe, tmp_path / "base.keras")
    if mode == "int8":
        small_fit(tmp_path / "run", recipe, tuned)
        tuned = keras.models.load_model(tmp_path / "run/best.keras")
    kernels = {weight.path: to_numpy(weight) for weight in base.weights}
    for part in lora_layers(tuned):
        assert part.quantization_mode == mode
        np.testing.assert_array_equal(to_numpy(part._kernel), kernels[part._kernel.path])
    warning = f"the kernels in {mode} are trained as floats"
    assert warning not in caplog.messages
    make_model(small_recipe(), tmp_path / "base.keras", 3)
    assert warning in caplog.messages


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora_rank": 0}, "`lora_rank` must be a positive number. Received: lora_rank=0"),
        ({"lora_rank": 1.5}, "`lora_rank` must be a whole number. Received: lora_rank=1.5"),
        ({"lora_rank": 2, "lora_alpha": -1.0}, "`lora_alpha` must be a positive"),
        ({"lora_alpha": 2.0}, "`lora_alpha` needs a `lora_rank`. .* lora_rank=None"),
        (
            {"lora_rank": 2, "freeze": True},
            "with `freeze` nor .* Received: .* freeze=True",
        ),
    ],
)
def test_wrong_recipes(settings, message):
    with pytest.raises(ValueError, match=message):
        small_recipe(**settings)


def test_a_resnet_has_no_lora(tmp_path):
    keras_vit.resnet((1,), 32, num_classes=2, image_size=8).save(tmp_path / "resnet.keras")
    with pytest.raises(ValueError, match="a ResNet has no attention"):
        make_model(small_recipe(lora_rank=2), tmp_path / "resnet.keras", 3)


@pytest.mark.large
def test_masked_patches_too(pretrained, tmp_path):
    recipe = small_recipe(loss="pixels", lora_rank=2)
    model = make_model(recipe, pretrained, 0)
    history = small_fit(tmp_path / "run", recipe, model)
    assert np.isfinite(history[-1]["loss"])
    assert all(to_numpy(part.lora_kernel_b).any() for part in lora_layers(model))
