"""Arguments of an export, the files that it writes, and warnings about what it is given."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.serving.export import _check_calibration, _facts, export
from keras_vit.serving.formats import FORMATS
from tests.fixtures.models import classifier
from tests.fixtures.predicted.predictors import keras_predictor
from tests.fixtures.tiny import TINY, images


def test_the_torch_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")
    with pytest.raises(ValueError, match="A SavedModel needs the backend tensorflow or jax"):
        export(classifier(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_channels": 1}, "`model` must map RGB images to logits"),
        ({"pooling": None}, "`model` must map RGB images to logits"),
        ({"pooling": None, "num_classes": 0}, "or to a vector for each"),
        ({"classifier_activation": "softmax"}, "`model` must map RGB images to logits"),
        ({"num_classes": 1}, "`model` must have at least 2 classes: "),
    ],
)
def test_only_classifiers_are_exported(options, message, tmp_path):
    model = vision_transformer(**{**TINY, **options})
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    if "num_classes" not in options:
        with pytest.raises(ValueError, match=message):
            keras_predictor(model)


def test_other_models_are_refused():
    for other in (keras.Sequential(), keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])):
        with pytest.raises(ValueError, match="`model` must be a Vision Transformer"):
            keras_predictor(other)


@pytest.mark.slow
def test_the_model_is_described(tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=2, image_size=16)
    metadata = {"source": "ViT_Ti16/augreg", "accuracy": 0.75}
    path = export(model, tmp_path / "pets", signatures=("float",), metadata=metadata)
    assert "pets" in (tmp_path / "pets" / "docker-compose.yml").read_text()
    found = json.loads((path / "model.json").read_text())
    assert metadata.items() <= found.items()
    assert found["variant"] == "ViT_Ti16" and found["image_size"] == [16, 16]
    assert found["keras"] == keras.__version__ and found["format"] == "saved_model"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tflite"}, r"`format` must be one of \('saved_model', .*'tflite'"),
        ({"on_bad_image": "skip"}, r"`on_bad_image` must be one of \('error', 'flag'\). .*'skip'"),
        ({"signatures": ("bytes", "text")}, "`signatures` must be one of .*signatures='text'"),
        ({"top_k": 0}, "`top_k` must be .*top_k=0"),
        ({"batch_size": 0}, "`batch_size` must be .*batch_size=0"),
        ({"quantize": "int8"}, r"`quantize` must be one of \(None,\)"),
        ({"format": "onnx", "quantize": "int8"}, "`calibration` must be prep.*Received: None"),
        ({"image_size": 18}, "`image_size`"),
    ],
)
def test_wrong_arguments(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(classifier(), tmp_path / "pets", **options)
    assert not (tmp_path / "pets").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_weights_that_are_not_finite(format, tmp_path):
    model = classifier()
    model.get_layer("head").bias.assign([0, np.nan, np.inf])
    message = "`model` must have finite weights.*head/bias has 2 NaN or infinite values of 3"
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "pets", format=format)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"dropout": 0.1}, {}),
        ({"num_registers": 4}, {"num_registers": 4}),
        ({"pooling": "map"}, {"pooling": "map"}),
        ({"activation": "gelu"}, {"activation": "gelu"}),
        ({"representation_size": 8}, {"representation_size": 8}),
    ],
    ids=str,
)
def test_the_variant_and_other_options_are_recorded(options, others, tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=3, image_size=(16, 32), **options)
    metadata = _facts(model, "onnx", None)
    assert (metadata["variant"], metadata["options"]) == ("ViT_Ti16", others)


def test_a_model_that_is_no_variant_has_all_its_options_recorded():
    metadata = json.loads(json.dumps(_facts(classifier(patch_size=(4, 8)), "onnx", None)))
    assert metadata["variant"] is None
    assert metadata["options"]["patch_size"] == [4, 8]
    assert metadata["options"]["depth"] == 2


@pytest.mark.slow
def test_a_head_of_zeros_is_named(tmp_path, caplog):
    model = classifier()
    export(model, tmp_path, format="litert")
    assert "zero" not in caplog.text
    model.get_layer("head").kernel.assign(np.zeros((8, 3)))
    export(model, tmp_path, format="litert")
    assert "the same logits of the 3 classes: the kernel of the model's head is zero" in caplog.text


def test_few_calibration_images_are_named(caplog):
    _check_calibration(images(10, 16, 16, 3))
    assert not caplog.messages
    _check_calibration(images(9, 16, 16, 3))
    assert caplog.messages == ["int8 is calibrated on 9 images: use some hundred"]
