"""Copies for inference: kernels are standardized and cast once."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.evaluation.classification import logits_function
from keras_vit.layers import StandardizedConv2D
from keras_vit.models import ImageModel, vision_transformer
from keras_vit.models.inference import for_inference, update_inference_copy
from keras_vit.models.resnet import resnet
from tests.fixtures.contract import to_numpy
from tests.fixtures.kernels import logits_of, tuned
from tests.fixtures.tiny import TINY, images

X = images(5, 16, 16, 3)
KINDS = ("resnet", "hybrid")
HALF = "mixed_bfloat16"


def build(kind, **options):
    if kind == "resnet":
        model = resnet((1,), 32, num_classes=3, image_size=16, **options)
    else:
        options = {"patch_size": 1, "resnet_stages": (1,), "resnet_width": 32, **options}
        model = vision_transformer(**{**TINY, **options})
    head = model.get_layer("head").kernel
    head.assign(images(*head.shape))
    return model


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
    assert folded.get_layer("root_conv").folded
    for outputs in (folded.predict(X, batch_size=2, verbose=0), logits_function(model)(X)):
        # XLA and TensorFlow's graphs round elsewhere.
        tolerance = 0 if keras.backend.backend() == "torch" else 2e-2
        tolerance = 1e-5 if dtype == "float32" else tolerance
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_weights_are_cast_once():
    model = vision_transformer(**TINY, layer_scale=0.1, pooling="map", dtype=HALF)
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
    before, config = to_numpy(model(X, training=False)), model.get_config()
    copy = for_inference(model)
    # The model is what it was.
    np.testing.assert_array_equal(to_numpy(model(X, training=False)), before)
    assert model.get_config() == config
    for index, variable in enumerate(model.weights):
        noise = keras.random.normal(variable.shape, stddev=0.1, seed=index)
        variable.assign(variable + noise)
    expected = to_numpy(model(X, training=False))
    assert np.abs(to_numpy(copy(X)) - expected).max() > 0.1
    update_inference_copy(model, copy)
    np.testing.assert_allclose(to_numpy(copy(X)), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("casting", [True, False])
def test_an_update_leaves_a_quantized_model_alone(casting):
    """With `casting` it is its own copy."""
    model = tuned(mode="int8", layers=("query",))
    copy, weights = for_inference(model, casting), model.get_weights()
    update_inference_copy(model, copy)
    for weight, value in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, value)
    # Inputs of int8 are rounded.
    np.testing.assert_allclose(logits_of(copy), logits_of(model), rtol=0, atol=1e-2)


def test_a_model_within_a_model_stays_as_it_is():
    image = keras.Input((16, 16, 3))
    inner = keras.Model(image, StandardizedConv2D(4, 3)(image))
    outer = keras.Input((16, 16, 3))
    model = ImageModel(outer, keras.layers.GlobalAveragePooling2D()(inner(outer)))
    kernel = to_numpy(inner.weights[0])
    copy = for_inference(model)
    np.testing.assert_allclose(to_numpy(copy(X)), to_numpy(model(X)), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(to_numpy(inner.weights[0]), kernel)
