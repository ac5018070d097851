"""A model's own resizing in `predict`, in each kind of export, and in evaluation."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.core.image_spec import WHOLE_IMAGE, ImageSpec
from keras_vit.data.images.decoding import decode
from keras_vit.experiments.model_and_data import open_trained
from keras_vit.serving.export import export
from keras_vit.serving.formats import FORMATS
from keras_vit.serving.image_files import preprocess_files
from keras_vit.serving.runner import load_runner
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.models import files, small_classifier
from tests.fixtures.serving.asking import answer

RESIZING = ImageSpec("bicubic", True, 0.8, True, cut_off=(2, 1))


@pytest.fixture
def model():
    model = small_classifier("token", image_size=(16, 16))
    model.image_spec = RESIZING
    return model


def logits_of(model, encoded, image_spec):
    return model.predict(preprocess_files(encoded, (16, 16), image_spec), verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["keras", *FORMATS])
def test_models_and_exports_resize_as_the_model_says(format, model, tmp_path):
    if format == "keras":
        path = tmp_path / "model.keras"
        model.save(path)
    else:
        path = export(model, tmp_path / "pets", format=format)
    encoded = files(5)
    expected = logits_of(model, encoded, RESIZING)
    assert np.abs(expected - logits_of(model, encoded, WHOLE_IMAGE)).max() > 1e-2
    np.testing.assert_allclose(answer(path, encoded), expected, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_each_signature_resizes_as_the_model_says(model, tmp_path):
    version = export(model, tmp_path / "pets", signatures=("uint8", "float"))
    (encoded,) = files(1)
    expected = logits_of(model, [encoded], RESIZING)
    pixels = decode(encoded, ImageSpec(antialias=True))[None]
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    np.testing.assert_allclose(served(images=pixels)["logits"], expected, rtol=0, atol=1e-5)
    # Without the signature for files, images are prepared as `model.json` says.
    np.testing.assert_allclose(answer(version, [encoded]), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_evaluation_resizes_as_the_model_says(model, tmp_path):
    photos = write_folder(tmp_path / "photos", ("cat", "dog", "eel"), count=4)
    model.save(tmp_path / "model.keras")
    trained = open_trained(tmp_path / "model.keras")
    data = trained.load(f"folder:{photos}", "test", batch_size=8)
    assert data.info.dataset.maker.preprocessing.image_spec == RESIZING
    cropped = trained.load(f"folder:{photos}", "test", batch_size=8, central_crop_from=20)
    assert cropped.info.dataset.maker.preprocessing.image_spec == WHOLE_IMAGE


def test_a_model_of_another_size_keeps_it(model):
    """Its patches reach all of the image."""
    uncut = dataclasses.replace(RESIZING, cut_off=(0, 0))
    assert keras_vit.resize(model, 32).image_spec == uncut
    assert preprocess_files(files(1), (32, 32), RESIZING).shape == (1, 32, 32, 3)


def test_a_model_of_any_size_sees_what_its_own_size_sees(model):
    found, expected = (
        each(preprocess_files(files(2), (16, 16), each.image_spec))
        for each in (keras_vit.resize(model, None), model)
    )
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_an_export_of_any_size_cuts_nothing_off_another_size(model, tmp_path):
    version = export(keras_vit.resize(model, None), tmp_path / "pets", format="onnx")
    encoded = files(2)
    images = [load_runner(version, image_size=32).prepare(file) for file in encoded]
    uncut = dataclasses.replace(RESIZING, cut_off=(0, 0))
    np.testing.assert_array_equal(images, preprocess_files(encoded, (32, 32), uncut))
