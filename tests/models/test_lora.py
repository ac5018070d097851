"""LoRA: the same function after merging, in files and surgery, and what is trained."""

import math

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


@pytest.mark.parametrize("options", [{}, GATED], ids=["plain", "gated"])
def test_merged_logits_are_the_same(options):
    model = tuned(**options)
    before, weights = logits_of(model), [to_numpy(weight) for weight in model.weights]
    merged = keras_vit.merge_lora(model)
    np.testing.assert_allclose(logits_of(merged), before, atol=1e-5)
    assert [w.path for w in merged.weights] == [w.path for w in small(**options).weights]
    assert type(merged) is type(model) and merged.options == model.options
    assert len(merged.trainable_weights) == len(merged.weights)
    for weight, value in zip(model.weights, weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)


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
    given.get_layer("block_0").mlp.trainable = False
    before, weights, flags = logits_of(given), given.get_weights(), trained_of(given)
    model = keras_vit.enable_lora(given, 2)
    np.testing.assert_allclose(logits_of(model), before, atol=1e-6)
    model.get_layer("block_0").mlp.dense_0.bias.assign(np.ones(16))
    assert trained_of(given) == flags and not lora_layers(given)
    for weight, value in zip(given.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert {part.quantization_mode for part in lora_layers(model)} == {mode}
    trained = {weight.path.rpartition("/")[2] for weight in model.trainable_weights}
    assert trained == {"lora_kernel_a", "lora_kernel_b", "kernel", "bias"}
    kernels = [w.path for w in model.trainable_weights if "lora" not in w.path]
    assert kernels == ["head/kernel", "head/bias"]


@on_tensorflow
def test_chosen_layers_and_both_classifiers():
    model = small(distillation_token=True)
    model = keras_vit.enable_lora(model, 2, layers=("query", "dense_1"))
    assert {part.name for part in lora_layers(model)} == {"query", "dense_1"}
    assert {w.path.split("/")[0] for w in model.trainable_weights} == {"block_0", "block_1", "head"}
    assert len(model.get_layer("head").trainable_weights) == 4


@on_tensorflow
def test_share_of_the_parameters():
    """Less than 2 % of those of ViT-B/16 at rank 8, counted from the layers of one block."""
    model = keras_vit.vision_transformer(16, 768, 1, 12, 3072, image_size=32, num_classes=0)
    model = keras_vit.enable_lora(model, 8)
    adapter = 12 * sum(math.prod(w.shape) for w in model.trainable_weights)
    assert adapter == 12 * 8 * (4 * (768 + 768) + 2 * (768 + 3072))
    assert adapter / 86_567_656 < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"dtype": "mixed_bfloat16", "remat": True, "dropout": 0.01}, {"mode": "int8"}],
    ids=["mixed", "int8"],
)
@pytest.mark.backends("tensorflow", "torch", reason="JAX compiles for seconds")
def test_training_changes_the_adapter_alone(settings):
    settings = dict(settings)
    mode = settings.pop("mode", None)
    model = small(depth=1, **settings)
    model = model if mode is None else keras_vit.quantize(model, mode)
    model = keras_vit.enable_lora(model, 2, 4)
    frozen = {w.path: to_numpy(w) for w in model.non_trainable_weights}
    assert "block_0/attention/query/kernel" in frozen
    model.compile(
        keras.optimizers.Adam(0.03),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    x, y = images(12, 16, 16, 3), np.arange(12) % 3
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=12, epochs=30, shuffle=False, verbose=0)
    after = model.evaluate(x, y, verbose=0)
    assert after < 0.7 * before
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
    model = tuned(**{"pooling": "map"})
    expected = logits_of(model)
    assert lora_layers(keras_vit.resize(model, 24)) == []
    assert keras_vit.replace_head(model, 5).output_shape == (None, 5)
    same_size = keras_vit.resize(model, 16)
    model.save(tmp_path / "model.keras")
    keras_vit.save_checkpoint(model, tmp_path / "model.npz", "big_vision")
    keras_vit.save_checkpoint(model, tmp_path / "timm", "timm")
    others = [
        *(same_size, for_inference(model), portable(model)),
        *(keras_vit.from_checkpoint(tmp_path / n) for n in ("model.keras", "model.npz", "timm")),
    ]
    for other in others:
        np.testing.assert_allclose(logits_of(other), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), expected, atol=1e-5)
    np.testing.assert_array_equal(logits_of(model), expected)


@pytest.mark.slow
@on_tensorflow
def test_a_saved_model_merges_it(tmp_path):
    import tensorflow as tf

    model = tuned()
    path = keras_vit.export(model, tmp_path / "served", signatures=("float",))
    served = tf.saved_model.load(path).signatures["serving_default"]
    (argument,) = served.structured_input_signature[1]
    logits = served(**{argument: tf.constant(IMAGES)})["logits"]
    np.testing.assert_allclose(logits, logits_of(model), atol=1e-5)


@pytest.mark.slow
@on_tensorflow
def test_half_precision_predicts_the_same():
    model = tuned(dtype="mixed_bfloat16")
    predicted = model.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(predicted, logits_of(model), atol=0.05 * np.abs(predicted).max())


def test_frozen_blocks_keep_their_base():
    model = tuned()
    keras_vit.freeze_blocks(model, 1)
    trained = {weight.path for weight in model.trainable_weights}
    assert {path.split("/")[0] for path in trained} == {"block_1", "head"}
    assert all("lora" in path for path in trained if path.startswith("block"))


@on_tensorflow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2, "layers": ("query", "gate")}, "`layers` must be names of query, .* Received"),
        ({"rank": 2, "layers": "query"}, "`layers` must be names of .* Received: layers="),
        ({"rank": 2, "layers": ()}, "`layers` must be names of"),
    ],
)
def test_wrong_arguments(arguments, message):
    model = keras_vit.vision_transformer(**TINY)
    with pytest.raises(ValueError, match=message):
        model = keras_vit.enable_lora(model, **arguments)
    assert lora_layers(model) == [] and len(model.trainable_weights) == len(model.weights)


@pytest.mark.slow
@on_tensorflow
def test_wrong_models():
    resnet = keras_vit.resnet((1,), 32, num_classes=2, image_size=32)
    with pytest.raises(ValueError, match="a ResNet has no attention. Received"):
        resnet = keras_vit.enable_lora(resnet, 2)
    for model in (tuned(), keras_vit.quantize(small(), "float8")):
        with pytest.raises(ValueError, match="`model` must have no LoRA and no float8"):
            keras_vit.enable_lora(model, 2)
    model = small()
    assert keras_vit.merge_lora(model) is model
