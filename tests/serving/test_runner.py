"""`load_runner` finds the file of an export, and runs models too."""

import numpy as np
import pytest

import keras_vit
from keras_vit.serving.export import export
from keras_vit.serving.runner import load_runner
from tests.fixtures.models import classifier, files, preprocessed
from tests.fixtures.tiny import images


@pytest.mark.slow
def test_a_runner_finds_its_file(tmp_path):
    model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    for _ in range(2):
        version = export(model, tmp_path, format="litert")
    for path in (version / "model.tflite", version, tmp_path):
        assert load_runner(path).image_shape == (32, 32, 3)
    with pytest.raises(ValueError, match="must be an existing file"):
        load_runner(version / "other.tflite")


@pytest.mark.slow
def test_a_model_runs_as_its_export(tmp_path):
    model = classifier()
    model.save(tmp_path / "model.keras")
    runner = load_runner(tmp_path / "model.keras", batch_size=4)
    expected = model.predict(images(9, 16, 16, 3), verbose=0)
    np.testing.assert_allclose(runner(images(9, 16, 16, 3)), expected, rtol=0, atol=1e-5)
    encoded = files(3)
    served = load_runner(export(model, tmp_path / "pets"))
    expected = model.predict(preprocessed(encoded, (16, 16)), verbose=0)
    np.testing.assert_allclose(served(encoded), expected, rtol=0, atol=1e-5)
