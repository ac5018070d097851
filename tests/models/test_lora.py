"""LoRA: the same function after merging, in files and surgery, and what is trained."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models.inference import for_inference
from keras_vit.models.surgery import lora_layers
from keras_vit.serving.formats.graph import portable
from tests.fixtures.contract import to_numpy
from tests.fixtures.kernels import GATED, IMAGES, logits_of, small, tuned
from tests.fixtures.tiny import TINY, images

MODES = [None, *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("int8", "int4"))]
on_tensorflow = pytest.mark.backends("tensorflow", reason="it is the same on every backend")


def trained_of(model):
    return [weight.path for weight in model.trainable_weights]


def test_merged_logits_are_the_same():
    model = tuned(**GATED)
    before, weights = logits_of(model), model.get_weights()
    merged = keras_vit.merge_lora(model)
    np.testing.assert_allclose(logits_of(merged), before, atol=1e-5)
    assert [w.path for w in merged.weights] == [w.path for w in small(**GATED).weights]
    assert type(merged) is type(model) and merged.options == model.options
    assert len(merged.trainable_weights) == len(merged.weights)
    for weight, value in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_it_is_the_product_of_the_paper():
    """`W x + alpha / r * B A x`, with the matrices flattened as peft has them."""
    dense = tuned().get_layer("block_0").attention.query
    a, b = to_numpy(dense.lora_kernel_a), to_numpy(dense.lora_kernel_b).reshape(2, -1)
    x = images(2, 5, 8)
    expected = x @ (to_numpy(dense.kernel).reshape(8, 8) + 3 / 2 * a @ b)
    expected += to_numpy(dense.bias).reshape(-1)
    np.testing.assert_allclose(to_numpy(dense(x)).reshape(2, 5, 8), expected, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_it_is_enabled_in_a_copy_with_the_same_logits(mode):
    given = small() if mode is None else keras_vit.quantize(small(), mode)
    before, weights, flags = logits_of(given), given.get_weights(), trained_of(given)
    model = keras_vit.enable_lora(given, 2)
    np.testing.assert_allclose(logits_of(model), before, atol=1e-6)
    model.get_layer("block_0").mlp.dense_0.bias.assign(np.ones(16))
    assert trained_of(given) == flags and not lora_layers(given)
    for weight, value in zip(given.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert {part.quantization_mode for part in lora_layers(model)} == {mode}
    names = {path.rpartition("/")[2] for path in trained_of(model) if not path.startswith("head/")}
    assert names == {"lora_kernel_a", "lora_kernel_b"}


@on_tensorflow
def test_chosen_layers_and_both_classifiers_are_trained():
    model = small(distillation_token=True)
    model = keras_vit.enable_lora(model, 2, layers=("query", "dense_1"))
    assert {part.name for part in lora_layers(model)} == {"query", "dense_1"}
    assert {path.split("/")[0] for path in trained_of(model)} == {"block_0", "block_1", "head"}
    assert len(model.get_layer("head").trainable_weights) == 4


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, "int8"])
@pytest.mark.backends("tensorflow", "torch", reason="JAX compiles for seconds")
def test_training_changes_the_adapter_alone(mode):
    model = small(depth=1, dtype="mixed_bfloat16", remat=True, dropout=0.01)
    model = model if mode is None else keras_vit.quantize(model, mode)
    model = keras_vit.enable_lora(model, 2, 4)
    frozen = {w.path: to_numpy(w) for w in model.non_trainable_weights}
    assert "block_0/attention/query/kernel" in frozen
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.03), loss, jit_compile=False)
    x, y = images(12, 16, 16, 3), np.arange(12) % 3
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=12, epochs=30, shuffle=False, verbose=0)
    assert model.evaluate(x, y, verbose=0) < 0.7 * before
    for weight in model.non_trainable_weights:
        np.testing.assert_array_equal(to_numpy(weight), frozen[weight.path])
    assert all(to_numpy(part.lora_kernel_b).any() for part in lora_layers(model))


@pytest.mark.parametrize("mode", MODES)
def test_a_loaded_model_has_the_same_adapter(mode, tmp_path):
    model = tuned(layers=("value", "dense_0"), mode=mode)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(logits_of(loaded), logits_of(model))
    assert trained_of(loaded) == trained_of(model)
    assert [(p.path, p.lora_rank, p.lora_alpha) for p in lora_layers(loaded)] == [
        (part.path, 2, 3) for part in lora_layers(model)
    ]


@pytest.mark.slow
@on_tensorflow
def test_surgery_files_and_exports_merge_it(tmp_path):
    model = tuned(pooling="map")
    expected = logits_of(model)
    model.save(tmp_path / "model.keras")
    keras_vit.save_checkpoint(model, tmp_path / "model.npz", "big_vision")
    keras_vit.save_checkpoint(model, tmp_path / "timm", "timm")
    others = [
        *(keras_vit.resize(model, 16), for_inference(model), portable(model)),
        *(keras_vit.from_checkpoint(tmp_path / n) for n in ("model.keras", "model.npz", "timm")),
    ]
    for other in others:
        np.testing.assert_allclose(logits_of(other), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), expected, atol=1e-5)
    np.testing.assert_array_equal(logits_of(model), expected)


def test_frozen_blocks_keep_their_base():
    model = tuned()
    keras_vit.freeze_blocks(model, 1)
    trained = trained_of(model)
    assert {path.split("/")[0] for path in trained} == {"block_1", "head"}
    assert all("lora" in path for path in trained if path.startswith("block"))


@on_tensorflow
def test_layers_that_a_block_does_not_have_are_refused():
    model = keras_vit.vision_transformer(**TINY)
    with pytest.raises(ValueError, match="`layers` must be names of query"):
        keras_vit.enable_lora(model, rank=2, layers=("query", "gate"))
    assert lora_layers(model) == [] and len(model.trainable_weights) == len(model.weights)


@pytest.mark.slow
@on_tensorflow
def test_a_second_lora_and_float8_are_refused():
    for model in (tuned(), keras_vit.quantize(small(), "float8")):
        with pytest.raises(ValueError, match="`model` must have no LoRA and no float8"):
            keras_vit.enable_lora(model, 2)
