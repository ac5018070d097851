"""Exports and commands give the probabilities of a zero-shot classifier."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

import keras_vit
from keras_vit.serving import Predictor, preprocess_files
from keras_vit.serving.runner import load_runner
from tests.fixtures.commands import run
from tests.fixtures.images import encode, random_image
from tests.fixtures.reference import read_npz
from tests.fixtures.zero_shot import NAMES, probabilities, texts, tower_and_images

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tower():
    return tower_and_images()


@pytest.fixture
def model(tower):
    return keras_vit.zero_shot(tower[0], texts()["text_embeds"], NAMES)


@pytest.fixture
def expected():
    return probabilities(
        read_npz("open_clip_vit.io.npz")["image_embeds"], texts()["text_embeds"], 100
    )


def test_a_saved_model(model, tower, expected, tmp_path):
    version = keras_vit.export(model, tmp_path)
    served = tf.saved_model.load(version).signatures["float"](images=tf.constant(tower[1]))
    np.testing.assert_allclose(served["probabilities"], expected, rtol=0, atol=1e-5)
    labels = [label.decode() for label in served["top_k_labels"].numpy()[:, 0]]
    assert labels == np.array(NAMES)[expected.argmax(-1)].tolist()


@pytest.mark.parametrize("format", ["onnx", "litert"])
def test_other_exports(format, model, tower, expected, tmp_path):
    runner = load_runner(keras_vit.export(model, tmp_path, format=format))
    found = scipy.special.softmax(runner(tower[1]), axis=-1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_predictions_of_a_keras_file(model, tmp_path, capsys):
    model.save(tmp_path / "model.keras")
    picture = tmp_path / "picture.png"
    picture.write_bytes(encode(random_image(40, 50), "PNG"))
    predict = Predictor(tmp_path / "model.keras", outputs=("prediction", "probability"))
    (found,) = predict({"path": [str(picture)]})["prediction"]
    images = preprocess_files([picture], model.input_shape[1:3], model.image_spec)
    assert found == NAMES[model.predict(images, verbose=0)[0].argmax()]
    line = run(capsys, "predict", tmp_path / "model.keras", picture, "--top", 1)
    assert f" {found} " in line


def test_labels_of_siglip(tower, tmp_path):
    """With thresholds, the probabilities are the sigmoids of the logits."""
    model = keras_vit.zero_shot(tower[0], texts()["text_embeds"], NAMES, scale=10, bias=0.5)
    model.thresholds = (0.5,) * 3
    version = keras_vit.export(model, tmp_path)
    served = tf.saved_model.load(version).signatures["float"](images=tf.constant(tower[1]))
    logits = model.predict(tower[1], verbose=0)
    np.testing.assert_allclose(
        served["probabilities"], scipy.special.expit(logits), rtol=0, atol=1e-5
    )
    np.testing.assert_array_equal(served["predicted"], logits > 0)
