"""Run in an environment without TensorFlow: the core imports, builds, trains, saves and reloads."""

import importlib.util

import keras
import numpy as np
import pytest

import keras_vit

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3))


@pytest.fixture(scope="module")
def model():
    assert importlib.util.find_spec("tensorflow") is None, "this environment has TensorFlow"
    model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(keras_vit.preprocess(IMAGES), np.array([0, 1, 2, 0]), verbose=0)
    return model


def test_surgery_and_features(model):
    resized = keras_vit.resize(keras_vit.replace_head(model, 5), (48, 32))
    assert resized.predict(np.zeros((1, 48, 32, 3)), verbose=0).shape == (1, 5)
    tokens = keras_vit.features(model, keras_vit.preprocess(IMAGES), ["block_3"])["block_3"]
    assert tokens.shape == (4, 5, 192)


def test_a_saved_model(model, tmp_path):
    images = keras_vit.preprocess(IMAGES)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(images, verbose=0), model.predict(images, verbose=0)
    )


def test_data_and_export_need_tensorflow(model, tmp_path):
    with pytest.raises(ImportError, match="tensorflow"):
        keras_vit.data.load("digits", "test", (32, 32), 4)
    with pytest.raises(ImportError, match="tensorflow"):
        keras_vit.export(model, tmp_path)
