"""Arguments of an export, and the files that it writes."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.serving import Predictor
from keras_vit.serving.export import export
from keras_vit.serving.formats import LABELS
from keras_vit.serving.runner import load_runner
from tests.fixtures.models import classifier, files
from tests.fixtures.tiny import TINY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": None}, "`model` must map images to logits"),
        ({"pooling": None, "num_classes": 0}, "or to one vector per image"),
        ({"classifier_activation": "softmax"}, "`model` must map images to logits"),
        ({"num_classes": 1}, "`model` must have at least 2 classes"),
    ],
)
def test_only_classifiers_are_exported(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(vision_transformer(**{**TINY, **options}), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_bad_image": "skip"}, "`on_bad_image` must be one of"),
        ({"signatures": ("bytes", "text")}, "`signatures` must be one of"),
        ({"quantize": "int8"}, "`quantize` must be one of"),
        ({"format": "onnx", "quantize": "int8"}, "`calibration` must be prep"),
        ({"class_names": ["cat", "dog"]}, "names 3 classes"),
        ({"class_names": ["cat", "CAT", "dog"]}, "differ by more than case"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(classifier(), tmp_path / "pets", **options)
    assert not (tmp_path / "pets").exists()


@pytest.mark.parametrize("format", ["saved_model", "onnx"])
def test_weights_that_are_not_finite_are_refused(format, tmp_path):
    model = classifier()
    model.get_layer("head").bias.assign([0, np.nan, np.inf])
    with pytest.raises(ValueError, match="`model` must have finite weights"):
        export(model, tmp_path / "pets", format=format)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_record_describes_the_model(tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=2, image_size=16, num_registers=4, dropout=0.1)
    metadata = {"source": "ViT_Ti16/augreg", "accuracy": 0.75}
    path = export(model, tmp_path / "pets", format="onnx", metadata=metadata)
    found = json.loads((path / "model.json").read_text())
    assert metadata.items() <= found.items()
    # Dropout is for training.
    assert (found["variant"], found["options"]) == ("ViT_Ti16", {"num_registers": 4})
    assert found["image_size"] == [16, 16] and found["num_classes"] == 2
    assert found["keras"] == keras.__version__ and found["format"] == "onnx"


@pytest.mark.slow
def test_labels_are_read_with_a_byte_order_mark_and_must_be_as_many_as_classes(tmp_path):
    version = export(classifier(), tmp_path, format="litert")
    names = ["crane", "cat", "crane"]
    (version / LABELS).write_text("\n".join(names), encoding="utf-8-sig")
    assert load_runner(version).class_names == names
    (version / LABELS).write_text("cat\ndog\n")
    with pytest.raises(ValueError, match="2 names"):
        Predictor(version)({"bytes": files(1)})


@pytest.mark.slow
def test_an_export_is_found_by_its_file_its_version_and_its_directory(tmp_path):
    first, second = (export(classifier(), tmp_path, format="litert") for _ in range(2))
    (first / "model.tflite").write_bytes(b"damaged")
    for path in (second / "model.tflite", second, tmp_path):
        assert load_runner(path).image_shape == (16, 16, 3)
