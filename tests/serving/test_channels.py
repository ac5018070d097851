"""Exports of models for images of one, two, four and thirteen channels."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.core.image_spec import ImageSpec
from keras_vit.data.images.decoding import decode
from keras_vit.data.images.geometry import evaluation_image
from keras_vit.models.surgery import with_channels
from keras_vit.serving import Predictor
from keras_vit.serving.export import export
from keras_vit.serving.formats import SIGNATURES
from keras_vit.serving.image_files import without_broken
from keras_vit.serving.runner import load_runner
from keras_vit.serving.warmup import write_warmup
from tests.fixtures.contract import to_numpy
from tests.fixtures.models import classifier
from tests.fixtures.tiny import images


def pixels_of(channels):
    return np.random.default_rng(1).integers(0, 256, (20, 30, channels), "uint8")


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(buffer, "PNG")
    return buffer.getvalue()


def logits_of(model, pixels):
    return to_numpy(model(evaluation_image(pixels, (16, 16))[None]))


def check(found, expected):
    np.testing.assert_allclose(to_numpy(found), expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module", params=[1, 2, 4, 13])
def exported(request, tmp_path_factory):
    """Channels, a model and its SavedModel."""
    model = with_channels(classifier(), request.param)
    path = tmp_path_factory.mktemp("export")
    path = export(model, path, signatures=SIGNATURES, warmup_batch_sizes=())
    return request.param, model, path


@pytest.mark.slow
def test_signatures_of_encoded_images_are_for_channels_of_pngs(exported):
    channels, _, path = exported
    names = set(tf.saved_model.load(str(path)).signatures)
    if channels in (1, 4):
        assert names == {"serving_default", "uint8", "float", "features"}
    else:
        assert names == {"serving_default", "float"}


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
def test_saved_models_answer_as_the_model(exported):
    channels, model, path = exported
    signatures, pixels = tf.saved_model.load(str(path)).signatures, pixels_of(channels)
    batch = images(2, 16, 16, channels)
    check(signatures["float"](images=tf.constant(batch))["logits"], to_numpy(model(batch)))
    expected, default = logits_of(model, pixels), signatures["serving_default"]
    if channels in (1, 4):
        check(default(image_bytes=tf.constant([png(pixels)]))["logits"], expected)
        check(signatures["uint8"](images=pixels[None])["logits"], expected)
    else:
        check(default(images=pixels[None])["logits"], expected)


@pytest.mark.slow
def test_pixels_are_predicted_by_exports_and_files(exported, tmp_path):
    channels, model, path = exported
    model.save(tmp_path / "model.keras")
    pixels = pixels_of(channels)
    for source in (path, tmp_path / "model.keras"):
        predictor = Predictor(source, outputs=("logits",))
        check(predictor({"image": [pixels]})["logits"], logits_of(model, pixels))


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
def test_a_saved_model_of_any_size_has_the_channels(tmp_path):
    model = with_channels(classifier(image_size=None), 13)
    served = tf.saved_model.load(str(export(model, tmp_path, signatures=["float"])))
    batch = images(2, 16, 24, 13)
    found = served.signatures["serving_default"](images=tf.constant(batch))["logits"]
    check(found, to_numpy(model(batch)))


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 13])
def test_onnx_answers_as_the_model(channels, tmp_path):
    model = with_channels(classifier(), channels)
    run, batch = load_runner(export(model, tmp_path, format="onnx")), images(2, 16, 16, channels)
    check(run(batch), to_numpy(model(batch)))


@pytest.mark.slow
def test_warm_up_requests_are_answered(exported):
    prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    _, _, path = exported
    signatures, seen = tf.saved_model.load(str(path)).signatures, set()
    for record in tf.data.TFRecordDataset(str(write_warmup(path, [1]))):
        request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        signatures[request.model_spec.signature_name](**inputs)
        seen.add(request.model_spec.signature_name)
    assert seen == set(signatures)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_colors_become_gray_as_in_pillow(mode):
    image = Image.fromarray(pixels_of(3)).convert(mode)
    decoded = decode(png(np.asarray(image)), ImageSpec(channels=1), in_graph=True)
    np.testing.assert_array_equal(decoded[..., 0], np.asarray(image.convert("L")))


@pytest.mark.parametrize(("channels", "given"), [(1, 4), (4, 3), (13, 3)])
def test_pixels_with_other_channels_are_refused(channels, given, tmp_path):
    with_channels(classifier(), channels).save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=rf"or \(height, width, {channels}"):
        Predictor(tmp_path / "model.keras")({"image": [pixels_of(given)]})


def test_files_are_checked_for_the_channels_of_the_model(tmp_path):
    for channels in (3, 13):
        np.save(tmp_path / f"{channels}.npy", pixels_of(channels))
    files = sorted(tmp_path.iterdir())
    assert without_broken(files, ImageSpec(channels=13)) == [tmp_path / "13.npy"]
