"""Predictions from a model and from its export."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.serving.export import export
from keras_vit.serving.predict import export_predictor, keras_predictor
from tests.contract import to_numpy
from tests.images import encode, random_image
from tests.models.test_vit import images
from tests.serving.test_export import NAMES, classifier


def test_predictors_agree(tmp_path):
    model = classifier()
    path = export(model, tmp_path, class_names=NAMES)
    for seed in range(3):
        file = encode(random_image(seed=seed))
        ours, exported = keras_predictor(model, NAMES)(file), export_predictor(path)(file)
        assert [name for name, _ in ours] == [name for name, _ in exported]
        np.testing.assert_allclose([p for _, p in ours], [p for _, p in exported], atol=1e-6)
        assert sum(probability for _, probability in ours) == pytest.approx(1)
        assert sorted(p for _, p in ours)[::-1] == [p for _, p in ours]


def test_predictor_without_names():
    classes = [name for name, _ in keras_predictor(classifier())(encode(random_image()))]
    assert sorted(classes) == ["0", "1", "2"]


def test_bytes_that_are_no_image(tmp_path):
    path = export(classifier(), tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError):
        export_predictor(path)(b"not an image")


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
