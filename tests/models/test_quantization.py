"""Quantized models: bit for bit in files, as accurate, and float in other forms."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.evaluation.classification import evaluate
from tests.fixtures.commands import run
from tests.fixtures.contract import to_numpy
from tests.fixtures.kernels import GATED, logits_of, reloaded_elsewhere, small, tuned
from tests.fixtures.tiny import images

pytestmark = pytest.mark.slow

MODES = ("int8", "int4", "float8")
on_tensorflow = pytest.mark.backends("tensorflow", reason="it is the same on every backend")


@on_tensorflow
def test_a_new_process_loads_the_same_models(tmp_path):
    models = [keras_vit.quantize(small(), mode) for mode in MODES]
    models += [tuned(), tuned(mode="int8")]
    assert reloaded_elsewhere(models, tmp_path) == [
        (True, sorted(weight.path for weight in model.trainable_weights)) for model in models
    ]


@pytest.mark.parametrize("mode", MODES)
def test_files_are_exact(mode, tmp_path):
    model = small(depth=1, pooling="map", dtype="mixed_bfloat16", **GATED)
    before = logits_of(model)
    quantized = keras_vit.quantize(model, mode)
    np.testing.assert_array_equal(logits_of(model), before)
    quantized.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(logits_of(loaded), logits_of(quantized))
    assert loaded.options == model.options
    assert loaded.get_layer("head").dtype_policy == model.get_layer("head").dtype_policy


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_kernels_are_nearest_values(mode):
    """The difference is at most half of a step, of 1 / 127 of the largest value of a column."""
    model = small()
    quantized = keras_vit.quantize(model, mode)
    plain = keras_vit.resize(quantized, 16)
    for path in ("query", "output_projection"):
        kernel = to_numpy(getattr(model.get_layer("block_0").attention, path).kernel)
        other = to_numpy(getattr(plain.get_layer("block_0").attention, path).kernel)
        axis = (0, 1) if path == "output_projection" else 0
        step = np.abs(kernel).max(axis) / 127 if mode == "int8" else np.ptp(kernel, axis) / 15
        assert (np.abs(kernel - other) <= 0.51 * step + (mode == "int4") * 0.51 * step).all()
        assert np.abs(kernel - other).max() > 0


@on_tensorflow
@pytest.mark.parametrize("mode", MODES)
def test_other_forms_are_float(mode, tmp_path):
    quantized = keras_vit.quantize(small(), mode)
    plain = keras_vit.resize(quantized, 16)
    keras_vit.save_checkpoint(quantized, tmp_path / "model.npz", "google")
    written = keras_vit.from_checkpoint(tmp_path / "model.npz")
    np.testing.assert_allclose(logits_of(written), logits_of(plain), atol=1e-5)
    assert keras_vit.replace_head(quantized, 5).output_shape == (None, 5)
    # Inputs of int8 and float8 are rounded in each call.
    np.testing.assert_allclose(logits_of(plain), logits_of(quantized), atol=0.1)


def test_lora_before_or_afterwards():
    """The base is the same, and the adapter is not rounded."""
    before = keras_vit.quantize(tuned(depth=1), "int8")
    afterwards = tuned(depth=1, mode="int8")
    np.testing.assert_array_equal(logits_of(before), logits_of(afterwards))
    assert [w.path for w in before.trainable_weights] == [
        w.path for w in afterwards.trainable_weights
    ]


@pytest.mark.backends("tensorflow", "torch", reason="JAX compiles for seconds")
def test_float8_trains():
    model = keras_vit.quantize(small(depth=1), "float8")
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    losses = model.fit(images(12, 16, 16, 3), np.arange(12) % 3, epochs=4, shuffle=False, verbose=0)
    assert losses.history["loss"][-1] < losses.history["loss"][0]
    assert to_numpy(model.get_layer("block_0").mlp.dense_0.inputs_scale) != 1


@on_tensorflow
def test_the_accuracy_of_int8_from_the_command(tmp_path, capsys):
    """On handwritten digits, int8 is within 1 % of float32."""
    from tests.fixtures.small_runs import small_data, small_fit, small_model, small_recipe

    recipe = small_recipe(steps=60, learning_rate=0.03)
    model = small_model(recipe, embedding_dim=32, mlp_dim=64)
    small_fit(tmp_path / "run", recipe, model)
    validation = small_data(recipe)[1].batches()
    exact = evaluate(model, validation)["accuracy"]
    assert exact > 0.8
    target = tmp_path / "int8.keras"
    assert "Wrote" in run(capsys, "convert", tmp_path / "run", target, "--quantize", "int8")
    loaded = keras.models.load_model(target)
    assert loaded.get_layer("block_0").mlp.dense_0.kernel.dtype == "int8"
    assert abs(evaluate(loaded, validation)["accuracy"] - exact) <= 0.01


@on_tensorflow
def test_wrong_models_and_modes_are_refused():
    with pytest.raises(ValueError, match="mode"):
        keras_vit.quantize(small(), "int3")
    int4 = keras_vit.quantize(small(), "int4")
    for model, mode in ((int4, "int8"), (tuned(), "float8")):
        with pytest.raises(ValueError, match="`model` must have blocks, not be"):
            keras_vit.quantize(model, mode)
