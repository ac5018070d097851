"""Export to a SavedModel, and predictions from it."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.data.decoding import decode
from keras_vit.data.images import evaluation_image
from keras_vit.models import resnet, vision_transformer
from keras_vit.serving.export import export
from keras_vit.serving.predict import find_saved_model, keras_predictor, saved_model_predictor
from tests.contract import POLICIES, randomise, to_numpy
from tests.images import encode, random_image
from tests.models.test_vit import TINY, images

NAMES = ("cat", "dog", "eel")


def classifier(**options):
    model = vision_transformer(**{**TINY, **options})
    model.get_layer("head").kernel.assign(images(8, 3))
    return model


@pytest.mark.parametrize("policy", POLICIES)
def test_signatures(policy, tmp_path):
    model = classifier(dtype=policy, image_size=(16, 24))
    path = export(model, tmp_path / "model", class_names=NAMES)
    signatures = tf.saved_model.load(path).signatures
    assert set(signatures) == {"serving_default", "images"}
    for batch_size in (1, 3):
        files = [
            encode(random_image(10 + index, 30, seed=index), file_format)
            for index, file_format in zip(range(batch_size), ("PNG", "JPEG", "BMP"), strict=False)
        ]
        pixels = np.stack([evaluation_image(decode(file), (16, 24)) for file in files])
        expected = model.predict(pixels, verbose=0)
        for outputs in (
            signatures["serving_default"](image_bytes=tf.constant(files)),
            signatures["images"](images=tf.constant(pixels)),
        ):
            assert set(outputs) == {"logits", "probabilities"}
            assert all(output.dtype == tf.float32 for output in outputs.values())
            tolerance = 1e-5 if policy == "float32" else 2e-2
            np.testing.assert_allclose(outputs["logits"], expected, rtol=0, atol=tolerance)
            np.testing.assert_allclose(
                outputs["probabilities"], tf.nn.softmax(outputs["logits"]), atol=1e-6
            )


def test_export_is_served_without_keras(tmp_path):
    """By TensorFlow alone, in a process where neither Keras nor this package can be imported."""
    model = classifier()
    path = export(model, tmp_path / "model", class_names=NAMES)
    (tmp_path / "image.png").write_bytes(encode(random_image()))
    code = """
import sys
sys.modules["keras"] = sys.modules["keras_vit"] = None
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
file = tf.constant([open(sys.argv[2], "rb").read()])
print(model.signatures["serving_default"](image_bytes=file)["logits"].numpy().tolist())
"""
    result = subprocess.run(
        [sys.executable, "-c", code, path, tmp_path / "image.png"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    pixels = evaluation_image(decode(encode(random_image())), (16, 16))[None]
    expected = model.predict(np.asarray(pixels), verbose=0)
    np.testing.assert_allclose(json.loads(result.stdout), expected, rtol=0, atol=1e-5)


def test_versions_and_files(tmp_path):
    model = classifier()
    directory = tmp_path / "serving" / "pets"
    assert export(model, directory, class_names=NAMES) == directory / "1"
    assert export(model, directory) == directory / "2"
    assert export(model, directory, version=7) == directory / "7"
    assert export(model, directory) == directory / "8"
    assert sorted(path.name for path in directory.iterdir()) == ["1", "2", "7", "8"]
    assert (directory / "1" / "assets.extra" / "labels.txt").read_text() == "cat\ndog\neel\n"
    facts = json.loads((directory / "1" / "model.json").read_text())
    assert facts["image_size"] == [16, 16]
    assert facts["num_classes"] == 3
    assert find_saved_model(directory) == directory / "8"
    assert find_saved_model(directory / "2") == directory / "2"
    assert find_saved_model(tmp_path) is None


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    def fail(model, path):
        path.mkdir()
        (path / "saved_model.pb").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("keras_vit.serving.export._write_saved_model", fail)
    with pytest.raises(OSError, match="No space left"):
        export(classifier(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_predictors_agree(tmp_path):
    model = classifier()
    path = export(model, tmp_path, class_names=NAMES)
    for seed in range(3):
        file = encode(random_image(seed=seed))
        ours, exported = keras_predictor(model, NAMES)(file), saved_model_predictor(path)(file)
        assert [name for name, _ in ours] == [name for name, _ in exported]
        np.testing.assert_allclose([p for _, p in ours], [p for _, p in exported], atol=1e-6)
        assert sum(probability for _, probability in ours) == pytest.approx(1)
        assert sorted(p for _, p in ours)[::-1] == [p for _, p in ours]


def test_predictor_without_names():
    classes = [name for name, _ in keras_predictor(classifier())(encode(random_image()))]
    assert sorted(classes) == ["0", "1", "2"]


@pytest.mark.parametrize("version", [0, -1, "first", 1.5])
def test_wrong_version(version, tmp_path):
    with pytest.raises(ValueError, match="`version` must be a positive integer"):
        export(classifier(), tmp_path, version=version)


def test_taken_version(tmp_path):
    (tmp_path / "3").mkdir()
    with pytest.raises(ValueError, match=r"`version` must be .*version=3.*\[3\]"):
        export(classifier(), tmp_path, version=3)


def test_wrong_names(tmp_path):
    with pytest.raises(ValueError, match="`class_names` must be a list that names .* 3 classes"):
        export(classifier(), tmp_path, class_names=["cat", "dog"])
    with pytest.raises(ValueError, match="`class_names` must be a list"):
        export(classifier(), tmp_path, class_names="abc")
    with pytest.raises(ValueError, match="`class_names` must be of one line"):
        export(classifier(), tmp_path, class_names=["a", "b\nc", "d"])


def test_probabilities_are_not_taken_for_logits(tmp_path):
    model = classifier(classifier_activation="softmax")
    for call in (lambda: export(model, tmp_path), lambda: keras_predictor(model)):
        with pytest.raises(ValueError, match="`model` must return logits.*'softmax'"):
            call()


def test_the_torch_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")
    with pytest.raises(ValueError, match="`export` needs the TensorFlow or JAX backend"):
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


def test_bytes_that_are_no_image(tmp_path):
    path = export(classifier(), tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError):
        saved_model_predictor(path)(b"not an image")


def test_saved_in_one_process_and_loaded_in_another(tmp_path):
    model = classifier(dtype="mixed_bfloat16", activation="gelu", pooling="map")
    batch = images(4, 16, 16, 3)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "images.npy", batch)
    code = """
import sys
import keras_vit
import keras
import keras
import numpy as np
directory = sys.argv[1]
model = keras.models.load_model(f"{directory}/model.keras")
logits = model(np.load(f"{directory}/images.npy"), training=False)
np.save(f"{directory}/logits.npy", keras.ops.convert_to_numpy(logits))
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, capture_output=True)
    expected = to_numpy(model(batch, training=False))
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), expected)


def test_public_name():
    assert keras_vit.export is export


@pytest.mark.parametrize(
    "policy", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.examples)]
)
@pytest.mark.parametrize("family", ["hybrid", "bit"])
def test_resnets_are_exported(family, policy, tmp_path):
    shared = {"num_classes": 3, "image_size": (16, 24), "dtype": policy}
    if family == "bit":
        model = resnet((1, 1), 32, **shared)
    else:
        hybrid = {"patch_size": 1, "resnet_stages": (1,), "resnet_width": 32}
        model = vision_transformer(**{**TINY, **hybrid, **shared})
    randomise(model)
    pixels = images(3, 16, 24, 3)
    expected = model.predict(pixels, verbose=0)
    assert np.isfinite(expected).all()
    served = tf.saved_model.load(export(model, tmp_path / "model", class_names=NAMES))
    outputs = served.signatures["images"](images=tf.constant(pixels))
    tolerance = 1e-5 if policy == "float32" else 2e-2
    scale = np.abs(expected).max()
    np.testing.assert_allclose(outputs["logits"], expected, rtol=0, atol=tolerance * scale)
