"""SavedModels, as what serves them sees them."""

import functools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.data.images.decoding import decode
from keras_vit.data.images.transforms import evaluation_image
from keras_vit.models import resnet, vision_transformer
from keras_vit.serving.checks import SIGNATURES
from keras_vit.serving.export import export
from tests.fixtures.contract import POLICIES, randomise, to_numpy
from tests.fixtures.images import random_image
from tests.fixtures.models import NAMES, classifier, files
from tests.fixtures.tiny import TINY, images


def preprocessed(encoded, size=(16, 24)):
    return np.stack([evaluation_image(decode(file), size) for file in encoded])


def of_one_size(count):
    """Pixels of one size, and what the model is given of them."""
    pixels = np.stack([random_image(20, 30, seed=seed) for seed in range(count)])
    return pixels, np.stack([evaluation_image(image, (16, 24)) for image in pixels])


@pytest.fixture(scope="module")
def export_once(tmp_path_factory):
    """A function of a policy that returns a model and its export with every signature."""

    @functools.cache
    def export_once(policy):
        model = classifier(dtype=policy, image_size=(16, 24))
        path = tmp_path_factory.mktemp("serving") / "pets"
        path = export(model, path, signatures=SIGNATURES, top_k=2, class_names=NAMES)
        return policy, model, tf.saved_model.load(path).signatures

    return export_once


@pytest.fixture(params=POLICIES)
def served(request, export_once):
    return export_once(request.param)


@pytest.mark.parametrize(
    ("served", "batch_size"),
    [*((policy, 3) for policy in POLICIES), ("float32", 1), ("float32", 17)],
    indirect=["served"],
)
def test_signatures(batch_size, served):
    policy, model, signatures = served
    assert set(signatures) == {"serving_default", "uint8", "float", "features"}
    encoded = files(batch_size)
    pixels = preprocessed(encoded)
    expected = model.predict(pixels, verbose=0)
    same_size, of_same_size = of_one_size(batch_size)
    tolerance = 1e-5 if policy == "float32" else 2e-2
    for outputs, logits in (
        (signatures["serving_default"](image_bytes=tf.constant(encoded)), expected),
        (signatures["float"](images=tf.constant(pixels)), expected),
        (signatures["uint8"](images=same_size), model.predict(of_same_size, verbose=0)),
    ):
        described = {name: (x.dtype.name, tuple(x.shape[1:])) for name, x in outputs.items()}
        assert described == {
            "logits": ("float32", (3,)),
            "probabilities": ("float32", (3,)),
            "top_k_classes": ("int32", (2,)),
            "top_k_labels": ("string", (2,)),
            "top_k_probabilities": ("float32", (2,)),
        }
        outputs = {name: output.numpy() for name, output in outputs.items()}
        np.testing.assert_allclose(outputs["logits"], logits, rtol=0, atol=tolerance)
        probabilities = tf.nn.softmax(outputs["logits"]).numpy()
        np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=1e-6)
        order = np.argsort(-outputs["logits"], axis=1)[:, :2]
        np.testing.assert_array_equal(outputs["top_k_classes"], order)
        np.testing.assert_array_equal(outputs["top_k_labels"], np.array(NAMES, "S")[order])
        best = np.take_along_axis(outputs["probabilities"], order, axis=1)
        np.testing.assert_array_equal(outputs["top_k_probabilities"], best)
    features = signatures["features"](image_bytes=tf.constant(encoded))
    assert set(features) == {"features"}
    expected = to_numpy(keras_vit.features(model, pixels)).astype("float32")
    np.testing.assert_allclose(features["features"], expected, rtol=0, atol=tolerance)


def test_names_and_types_are_in_the_file(served):
    """What a client is told by the server."""
    for name, argument, shape, dtype in (
        ("serving_default", "image_bytes", [None], tf.string),
        ("uint8", "images", [None, None, None, 3], tf.uint8),
        ("float", "images", [None, 16, 24, 3], tf.float32),
        ("features", "image_bytes", [None], tf.string),
    ):
        _, arguments = served[2][name].structured_input_signature
        assert arguments == {argument: tf.TensorSpec(shape, dtype, name=argument)}


def test_bad_images_are_named_by_their_index(served):
    good, serve = files(2), served[2]["serving_default"]
    for encoded, indices in (
        ([good[0], b"no image", good[1], good[1][:40]], r"\[1 3\]"),
        ([b""], r"\[0\]"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"by their index.*{indices}"):
            serve(image_bytes=tf.constant(encoded))


@pytest.mark.parametrize("value", [np.nan, -np.inf, 255.0])
def test_images_that_are_not_scaled_are_refused(value, served):
    serve, pixels = served[2]["float"], preprocessed(files(2))
    pixels[1, 2, 3, 0] = value
    message = r"`images` must be scaled to \[-1, 1\],.* values up to.*(inf|255)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        serve(images=tf.constant(pixels))


def test_bad_images_are_flagged(tmp_path):
    model = classifier(image_size=(16, 24))
    signatures = ("bytes", "features")
    options = {"class_names": NAMES, "on_bad_image": "flag", "signatures": signatures}
    loaded = tf.saved_model.load(export(model, tmp_path / "pets", **options)).signatures
    good = files(3)
    encoded = tf.constant([b"", good[0], good[1][:50], *good[1:], b"no image"])
    outputs = loaded["serving_default"](image_bytes=encoded)
    is_bad = [True, False, True, False, False, True]
    assert outputs.pop("is_bad").numpy().tolist() == is_bad
    expected = model.predict(preprocessed(good), verbose=0)
    kept = np.flatnonzero(~np.array(is_bad))
    np.testing.assert_allclose(outputs["logits"].numpy()[kept], expected, rtol=0, atol=1e-5)
    for output in outputs.values():
        zero = b"" if output.dtype == tf.string else 0
        assert (output.numpy()[is_bad] == zero).all()
    features = loaded["features"](image_bytes=encoded)
    assert features["is_bad"].numpy().tolist() == is_bad
    assert not features["features"].numpy()[is_bad].any()
    assert features["features"].numpy()[kept].any(axis=1).all()
    only_bad = loaded["serving_default"](image_bytes=tf.constant([b"", b"1"]))
    assert only_bad["is_bad"].numpy().all() and not only_bad["logits"].numpy().any()


def test_a_batch_and_an_image_size_are_fixed(tmp_path):
    model = classifier()
    path = export(model, tmp_path / "pets", batch_size=2, image_size=(8, 24), signatures=["float"])
    serve = tf.saved_model.load(path).signatures["serving_default"]
    assert serve.inputs[0].shape == (2, 8, 24, 3)
    pixels = images(2, 8, 24, 3)
    expected = keras_vit.resize(model, (8, 24)).predict(pixels, verbose=0)
    outputs = serve(images=tf.constant(pixels))
    np.testing.assert_allclose(outputs["logits"], expected, rtol=0, atol=1e-5)
    # Of three classes there are no five best.
    assert outputs["top_k_labels"].numpy().tolist() == [
        [b"%d" % label for label in np.argsort(-row)] for row in expected
    ]


WITHOUT_KERAS = """
import sys
sys.modules["keras"] = sys.modules["keras_vit"] = None
import numpy as np
import tensorflow as tf
directory = sys.argv[1]
signatures = tf.saved_model.load(f"{directory}/pets/1").signatures
pixels, same_size = (np.load(f"{directory}/{name}.npy") for name in ("pixels", "same_size"))
for count in (1, 3, 17):
    encoded = [open(f"{directory}/{index}", "rb").read() for index in range(count)]
    for name, inputs in {
        "serving_default": {"image_bytes": tf.constant(encoded)},
        "float": {"images": pixels[:count]},
        "uint8": {"images": same_size[:count]},
        "features": {"image_bytes": tf.constant(encoded)},
    }.items():
        outputs = {key: value.numpy() for key, value in signatures[name](**inputs).items()}
        np.savez(f"{directory}/{name}_{count}", **outputs)
"""


def test_export_is_served_without_keras(tmp_path):
    """By TensorFlow alone, in a process where neither Keras nor this package can be imported."""
    model = classifier(image_size=(16, 24))
    export(model, tmp_path / "pets", signatures=SIGNATURES, class_names=NAMES)
    encoded = files(17)
    for index, file in enumerate(encoded):
        (tmp_path / str(index)).write_bytes(file)
    pixels, (same_size, of_same_size) = preprocessed(encoded), of_one_size(17)
    np.save(tmp_path / "pixels.npy", pixels)
    np.save(tmp_path / "same_size.npy", same_size)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", WITHOUT_KERAS, tmp_path]
    subprocess.run(command, capture_output=True, check=True, env=environment)
    logits = model.predict(pixels, verbose=0)
    expected = {
        "serving_default": ("logits", logits),
        "float": ("logits", logits),
        "uint8": ("logits", model.predict(of_same_size, verbose=0)),
        "features": ("features", to_numpy(keras_vit.features(model, pixels))),
    }
    for count in (1, 3, 17):
        for name, (output, values) in expected.items():
            with np.load(tmp_path / f"{name}_{count}.npz") as found:
                np.testing.assert_allclose(found[output], values[:count], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("signature", "argument"),
    [
        ("serving_default", "image_bytes"),
        # Each starts TensorFlow once more.
        pytest.param("float", "images", marks=pytest.mark.large),
        pytest.param("uint8", "images", marks=pytest.mark.large),
        pytest.param("features", "image_bytes", marks=pytest.mark.large),
    ],
)
def test_saved_model_cli_runs_every_signature(signature, argument, tmp_path):
    """By the loader that TF Serving has."""
    model = classifier(image_size=(16, 24))
    path = export(model, tmp_path / "pets", signatures=SIGNATURES, class_names=NAMES)
    # NumPy's strings of one length lose zeros at their ends, with which BMP and WebP may end.
    encoded = [file for file in files(8) if not file.endswith(b"\0")][:3]
    pixels, (same_size, of_same_size) = preprocessed(encoded), of_one_size(3)
    values, output, expected = {
        "serving_default": (np.array(encoded), "logits", model(pixels)),
        "float": (pixels, "logits", model(pixels)),
        "uint8": (same_size, "logits", model(of_same_size)),
        "features": (np.array(encoded), "features", keras_vit.features(model, pixels)),
    }[signature]
    np.save(tmp_path / "inputs.npy", values)
    cli = pathlib.Path(sys.executable).with_name("saved_model_cli")
    command = [cli, "run", "--dir", path, "--tag_set", "serve", "--signature_def", signature]
    inputs = ["--inputs", f"{argument}={tmp_path / 'inputs.npy'}", "--outdir", tmp_path / "found"]
    subprocess.run([*command, *inputs], check=True, capture_output=True)
    found = np.load(tmp_path / "found" / f"{output}.npy")
    np.testing.assert_allclose(found, to_numpy(expected), rtol=0, atol=1e-5)


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
    outputs = served.signatures["float"](images=tf.constant(pixels))
    tolerance = 1e-5 if policy == "float32" else 2e-2
    scale = np.abs(expected).max()
    np.testing.assert_allclose(outputs["logits"], expected, rtol=0, atol=tolerance * scale)


def test_warmup_requests_are_of_every_signature(tmp_path):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    path = export(classifier(), tmp_path, signatures=SIGNATURES, warmup_batch_sizes=(2,))
    signatures = tf.saved_model.load(path).signatures
    records = tf.data.TFRecordDataset(path / "assets.extra" / "tf_serving_warmup_requests")
    seen = set()
    for record in records.as_numpy_iterator():
        request = logs.PredictionLog.FromString(record).predict_log.request
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        assert [len(value) for value in inputs.values()] == [2]
        signatures[request.model_spec.signature_name](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        seen.add(request.model_spec.signature_name)
    assert seen == set(signatures)
