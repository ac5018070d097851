"""Export to a SavedModel."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.serving.export import export
from keras_vit.serving.predict import keras_predictor
from tests.fixtures.models import classifier
from tests.fixtures.tiny import TINY


def test_wrong_names(tmp_path):
    model = classifier()
    for wrong in (["cat", "dog"], "abc"):
        with pytest.raises(ValueError, match="`class_names` must be a list or tuple .* 3 classes"):
            export(model, tmp_path, class_names=wrong)
    for wrong in ("b\nc", "b\r", "b\u2028c", "b\udc80", 2):
        with pytest.raises(ValueError, match="`class_names` must be strings of one line"):
            export(model, tmp_path, class_names=["a", wrong, "d"])


def test_probabilities_are_not_taken_for_logits(tmp_path):
    model = classifier(classifier_activation="softmax")
    for call in (lambda: export(model, tmp_path), lambda: keras_predictor(model)):
        with pytest.raises(ValueError, match="`model` must return logits.*'softmax'"):
            call()


def test_the_torch_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")
    with pytest.raises(ValueError, match="A SavedModel needs the TensorFlow or JAX backend"):
        export(classifier(), tmp_path)


@pytest.mark.parametrize("options", [{"image_channels": 1}, {"pooling": None}])
def test_not_a_classifier_of_pictures(options, tmp_path):
    with pytest.raises(ValueError, match="`model` must map RGB images to logits"):
        export(vision_transformer(**{**TINY, **options}), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_models_that_are_no_classifiers(tmp_path):
    features = vision_transformer(**{**TINY, "num_classes": 0})
    with pytest.raises(ValueError, match="`model` must have one input, .* and 0 heads"):
        export(features, tmp_path)
    for other in (keras.Sequential(), keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])):
        with pytest.raises(ValueError, match="`model` must be a Vision Transformer"):
            keras_predictor(other)


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="`directory` must be a directory"):
            export(classifier(), directory)


def test_one_logit_is_no_probability(tmp_path):
    with pytest.raises(ValueError, match="`model` must have two classes or more for a SavedModel"):
        export(vision_transformer(**{**TINY, "num_classes": 1}), tmp_path)


@pytest.mark.parametrize("error", [tf.errors.ResourceExhaustedError, OSError, RuntimeError])
def test_a_full_disk(error, tmp_path, monkeypatch):
    def fail(*_):
        text = "model.data: No space left on device"
        raise error(None, None, text) if error is tf.errors.ResourceExhaustedError else error(text)

    monkeypatch.setattr("keras_vit.serving.export._write_saved_model", fail)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"):
        export(classifier(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_public_name():
    assert keras_vit.export is export


def test_settings_for_the_server_stand_beside_the_versions(tmp_path):
    export(classifier(), tmp_path / "pets", warmup_batch_sizes=())
    compose = tmp_path / "pets" / "docker-compose.yml"
    assert "pets" in compose.read_text()
    # What somebody has adapted is kept.
    compose.write_text("adapted")
    export(classifier(), tmp_path / "pets", warmup_batch_sizes=())
    assert compose.read_text() == "adapted"


def test_what_a_model_is_stands_beside_it(tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=2, image_size=16)
    facts = {"source": "ViT_Ti16/augreg", "accuracy": 0.75}
    path = export(model, tmp_path, signatures=("float",), facts=facts)
    found = json.loads((path / "model.json").read_text())
    assert facts.items() <= found.items()
    assert found["variant"] == "ViT_Ti16" and found["image_size"] == [16, 16]
    assert found["keras"] == keras.__version__ and found["format"] == "saved_model"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tflite"}, "`format` must be one of saved_model, .*'tflite'"),
        ({"on_bad_image": "skip"}, "`on_bad_image` must be one of error, flag. .*'skip'"),
        ({"signatures": ()}, r"`signatures` must be some of .*signatures=\(\)"),
        ({"signatures": ("bytes", "bytes")}, "`signatures` must be .* each once"),
        ({"signatures": "bytes"}, "`signatures` must be some of .*signatures='bytes'"),
        ({"top_k": 0}, "`top_k` must be .*top_k=0"),
        ({"batch_size": 0}, "`batch_size` must be .*batch_size=0"),
        (
            {"on_bad_image": "flag", "signatures": ("float", "uint8")},
            "`on_bad_image` is for the signatures that take encoded images",
        ),
        ({"warmup_batch_sizes": (0,)}, "`warmup_batch_sizes` must be a list of positive"),
        ({"warmup_batch_sizes": 3}, "`warmup_batch_sizes` must be a list of positive"),
        (
            {"warmup_batch_sizes": (2,), "batch_size": 4},
            "`warmup_batch_sizes` must be `batch_size` where .*=4",
        ),
        ({"quantize": "int8"}, "`quantize` is for the formats onnx, litert and openvino"),
        (
            {"format": "onnx", "quantize": "int8"},
            "`calibration` must be some images .*onnx in int8",
        ),
        ({"format": "onnx", "batch_size": 4}, "`batch_size` is for SavedModels.*=4, format='onnx'"),
        ({"format": "litert", "on_bad_image": "flag"}, "`on_bad_image` is for SavedModels"),
        ({"format": "litert", "signatures": ["float"]}, "`signatures` is for SavedModels"),
        (
            {"format": "litert", "quantize": "int8", "calibration": []},
            "`calibration` is for onnx in",
        ),
        (
            {
                "format": "onnx",
                "quantize": "int8",
                "calibration": np.zeros((2, 8, 8, 3), "float32"),
            },
            r"`calibration` must be a float32 array \(n, 16, 16, 3\).*\(2, 8, 8, 3\)",
        ),
        ({"image_size": 18}, "`image_size`"),
    ],
)
def test_wrong_arguments(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(classifier(), tmp_path / "pets", **options)
    assert not (tmp_path / "pets").exists()


@pytest.mark.parametrize("format", ["saved_model", "onnx", "litert", "openvino"])
def test_weights_that_are_not_finite(format, tmp_path):
    model = classifier()
    model.get_layer("head").bias.assign([0, np.nan, np.inf])
    message = "`model` must have finite weights. .*head/bias has 2 NaN or infinite values of 3"
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "pets", format=format)
    assert not list(tmp_path.iterdir())
