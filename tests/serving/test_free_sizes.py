"""Exports of models of any image size."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.models import resize, vision_transformer
from keras_vit.serving.export import export
from keras_vit.serving.formats import FORMATS
from keras_vit.serving.runner import load_runner
from keras_vit.serving.verify import verify
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import files, preprocessed
from tests.fixtures.serving.asking import answer
from tests.fixtures.tiny import TINY, images

# That of the stored positions, and others.
SIZES = [(16, 16), (8, 8), (24, 40)]


# Conversions take seconds.
SINCOS = pytest.param("sincos2d", marks=pytest.mark.large)


@pytest.fixture(scope="module", params=["learned", SINCOS])
def model(request):
    model = vision_transformer(**TINY, position_embedding=request.param)
    randomise(model)
    return resize(model, None)


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
@pytest.mark.parametrize("batch_size", [None, pytest.param(2, marks=pytest.mark.large)])
def test_a_saved_model_takes_images_of_any_size(batch_size, model, tmp_path):
    options = {"batch_size": batch_size, "warmup_batch_sizes": ()}
    path = export(model, tmp_path / "pets", signatures=("bytes", "uint8", "float"), **options)
    served = tf.saved_model.load(path).signatures
    for size in SIZES:
        batch = images(2, *size, 3)
        logits = served["float"](images=tf.constant(batch))["logits"]
        np.testing.assert_allclose(logits, to_numpy(model(batch)), rtol=0, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        served["float"](images=tf.constant(images(2, 18, 16, 3)))
    # Encoded images become as large as those of the stored positions.
    metadata = json.loads((path / "model.json").read_text())
    assert metadata["image_size"] == [16, 16] and "image_size" not in metadata["options"]
    encoded = files(2)
    logits = served["serving_default"](image_bytes=tf.constant(encoded))["logits"]
    np.testing.assert_allclose(answer(path, encoded), logits, rtol=0, atol=1e-6)
    expected = to_numpy(model(preprocessed(encoded, (16, 16))))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "openvino", "litert"])
def test_a_file_takes_images_of_any_size(format, model, tmp_path):
    pytest.importorskip({"onnx": "onnxruntime", "litert": "ai_edge_litert"}.get(format, format))
    path = export(model, tmp_path / "pets", format=format)
    (tmp_path / "image.jpg").write_bytes(files(1)[0])
    assert verify(model, path, [tmp_path / "image.jpg"]).largest_difference < 1e-5
    runner = load_runner(path / FORMATS[format].file_name)
    assert runner.image_shape == (None, None, 3)
    for size in SIZES:
        for count in (1, 3):
            batch = images(count, *size, 3)
            found, expected = runner(batch), to_numpy(model(batch))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # Runtimes have errors of their own.
    with pytest.raises(Exception, match=r"(?i)reshape"):
        runner(images(4, 18, 16, 3))


@pytest.mark.large
def test_int8_is_calibrated_at_one_size(model, tmp_path):
    pytest.importorskip("onnxruntime")
    options = {"format": "onnx", "quantize": "int8"}
    path = export(model, tmp_path / "pets", calibration=images(12, 16, 16, 3), **options)
    run = load_runner(path / "model.onnx")
    for size in SIZES[::2]:
        batch = images(2, *size, 3)
        np.testing.assert_allclose(run(batch), to_numpy(model(batch)), rtol=0, atol=0.1)


@pytest.mark.large
def test_a_model_of_any_size_is_exported_for_one(model, tmp_path):
    path = export(model, tmp_path / "pets", format="litert", image_size=(8, 24))
    assert load_runner(path / "model.tflite").image_shape == (8, 24, 3)
    assert json.loads((path / "model.json").read_text())["image_size"] == [8, 24]
