"""Copies for inference: kernels are standardized and cast once, also in exports."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.evaluation.classification import logits_function
from keras_vit.layers import StandardizedConv2D
from keras_vit.models import ImageModel, vision_transformer
from keras_vit.models.inference import for_inference, update_inference_copy
from keras_vit.models.resnet import resnet
from keras_vit.serving.export import export
from keras_vit.serving.formats import FORMATS
from tests.fixtures.contract import to_numpy
from tests.fixtures.kernels import logits_of, tuned
from tests.fixtures.tiny import TINY, images

X = images(5, 16, 16, 3)
KINDS = ("resnet", "hybrid")
HALF = "mixed_bfloat16"
NUM_KERNELS = 5


def build(kind, **options):
    keras.utils.set_random_seed(0)
    if kind == "resnet":
        model = resnet((1,), 32, num_classes=3, image_size=16, **options)
    else:
        options = {"patch_size": 1, "resnet_stages": (1,), "resnet_width": 32, **options}
        model = vision_transformer(**{**TINY, **options})
    head = model.get_layer("head").kernel
    head.assign(images(*head.shape))
    return model


@pytest.fixture
def standardized(monkeypatch):
    """The kernels that are standardized: by a call, or while a function is traced."""
    found = []
    is_torch = keras.backend.backend() == "torch"
    method = "_standardize_rows" if is_torch else "standardize"
    standardize = getattr(StandardizedConv2D, method)

    def count(layer, kernel):
        found.append(layer.name)
        return standardize(layer, kernel)

    monkeypatch.setattr(StandardizedConv2D, method, count)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", HALF])
def test_the_same_numbers(kind, dtype):
    model = build(kind, dtype=dtype)
    for variable in model.weights:
        variable.assign(variable + 0.05 * keras.random.normal(variable.shape, seed=0))
    # Compiled, as Keras predicts.
    expected = model.predict(X, verbose=0)
    folded = for_inference(model)
    for outputs in (folded.predict(X, batch_size=2, verbose=0), logits_function(model)(X)):
        # XLA and TensorFlow's graphs round elsewhere.
        tolerance = 0 if keras.backend.backend() == "torch" else 2e-2
        tolerance = 1e-5 if dtype == "float32" else tolerance
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kernel_is_standardized_once(kind, standardized):
    model = build(kind)
    standardized.clear()
    folded = for_inference(model)
    assert len(standardized) == NUM_KERNELS
    for _ in range(2):
        folded.predict(X, batch_size=1, verbose=0)
    assert len(standardized) == NUM_KERNELS
    standardized.clear()
    keras_vit.features(model, X)
    assert len(standardized) == NUM_KERNELS


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="it reads a graph of TensorFlow")
@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_of_a_folded_model_has_no_statistics_of_kernels(kind):
    import tensorflow as tf

    model = build(kind)

    def readers(function):
        """The operations that read a kernel of a convolution."""
        graph = function.get_concrete_function(tf.TensorSpec((2, 16, 16, 3))).graph
        kernels = [op.outputs[0] for op in graph.get_operations() if op.type == "ReadVariableOp"]
        kernels = [kernel for kernel in kernels if len(kernel.shape) == 4]
        assert len(kernels) >= NUM_KERNELS
        return {reader.type for kernel in kernels for reader in kernel.consumers()}

    assert readers(tf.function(lambda x: model(x, training=False))) >= {"Mean", "Sub"}
    folded = for_inference(model)
    assert readers(tf.function(lambda x: folded(x, training=False))) == {"Conv2D"}


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
@pytest.mark.parametrize(
    "format_name",
    [
        pytest.param(name, marks=() if name == "saved_model" else pytest.mark.large)
        for name in FORMATS
    ],
)
def test_exports_have_no_statistics_of_kernels(format_name, standardized, tmp_path):
    model = build("resnet")
    standardized.clear()
    export(model, tmp_path / "pets", format=format_name)
    assert len(standardized) == NUM_KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["token", "map"])
def test_weights_are_cast_once(pooling):
    options = {**TINY, "pooling": pooling, "layer_scale": 0.1}
    model = vision_transformer(**options, dtype=HALF)
    head = model.get_layer("head").kernel
    head.assign(images(*head.shape))
    folded = for_inference(model)
    dtypes = {True: set(), False: set()}
    for variable in folded.get_layer("block_0").weights:
        dtypes["norm" in variable.path].add(variable.dtype)
    assert dtypes == {True: {"float32"}, False: {"bfloat16"}}
    assert folded.get_layer("head").kernel.dtype == "float32"
    np.testing.assert_array_equal(folded.predict(X, verbose=0), model.predict(X, verbose=0))


@pytest.mark.parametrize("kind", [*KINDS, "lora"])
def test_a_copy_gets_the_weights_of_now(kind):
    if kind == "lora":
        model = keras_vit.enable_lora(vision_transformer(**TINY), rank=2)
    else:
        model = build(kind)
    copy = for_inference(model)
    for index, variable in enumerate(model.weights):
        noise = keras.random.normal(variable.shape, stddev=0.1, seed=index)
        variable.assign(variable + noise)
    expected = to_numpy(model(X, training=False))
    assert np.abs(to_numpy(copy(X)) - expected).max() > 0.1
    update_inference_copy(model, copy)
    np.testing.assert_allclose(to_numpy(copy(X)), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("casting", [True, False])
def test_an_update_leaves_a_quantized_model_alone(mode, casting):
    """With `casting` it is its own copy."""
    model = tuned(mode=mode, layers=("query",))
    copy, weights = for_inference(model, casting), model.get_weights()
    update_inference_copy(model, copy)
    for weight, value in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, value)
    # Inputs of int8 are rounded.
    np.testing.assert_allclose(logits_of(copy), logits_of(model), rtol=0, atol=1e-2)


@pytest.mark.slow
def test_the_model_stays_as_it_was(tmp_path):
    model = build("resnet")
    outputs = [layer.output for layer in model.layers]
    weights, config = model.get_weights(), model.get_config()
    for_inference(model)
    assert all(old is layer.output for old, layer in zip(outputs, model.layers, strict=True))
    assert model.get_config() == config
    for old, new in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))


def test_a_model_without_standardized_kernels_is_itself():
    model = vision_transformer(**TINY)
    assert for_inference(model) is model
    folded = for_inference(build("resnet"))
    assert for_inference(folded) is folded


def test_a_model_within_a_model_stays_as_it_is():
    image = keras.Input((16, 16, 3))
    inner = keras.Model(image, StandardizedConv2D(4, 3)(image))
    outer = keras.Input((16, 16, 3))
    model = ImageModel(outer, keras.layers.GlobalAveragePooling2D()(inner(outer)))
    kernel = to_numpy(inner.weights[0])
    copy = for_inference(model)
    np.testing.assert_allclose(to_numpy(copy(X)), to_numpy(model(X)), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(to_numpy(inner.weights[0]), kernel)


def test_models_composed_by_hand_are_folded():
    image = keras.Input((16, 16, 3))
    x = keras.layers.Conv2D(4, 3)(StandardizedConv2D(4, 3)(image))
    model = keras.Model(image, [x, keras.layers.GlobalAveragePooling2D()(x)])
    for new, old in zip(for_inference(model)(X), model(X), strict=True):
        np.testing.assert_allclose(to_numpy(new), to_numpy(old), rtol=0, atol=1e-6)
