"""SavedModels, as a server sees them."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.data.images.geometry import evaluation_image
from keras_vit.serving.export import export
from keras_vit.serving.formats import SIGNATURES
from tests.fixtures.contract import POLICIES, to_numpy
from tests.fixtures.images import random_image
from tests.fixtures.models import NAMES, classifier, files, preprocessed
from tests.fixtures.tiny import images


def of_one_size(count):
    """Return pixels of one size, and the same preprocessed."""
    pixels = np.stack([random_image(20, 30, seed=seed) for seed in range(count)])
    return pixels, np.stack([evaluation_image(image, (16, 24)) for image in pixels])


# It takes seconds per policy.
FIRST, *OTHERS = POLICIES


@pytest.fixture(
    scope="module",
    params=[FIRST, *(pytest.param(policy, marks=pytest.mark.large) for policy in OTHERS)],
)
def served(request, tmp_path_factory):
    """A policy, a model and its export with every signature."""
    model = classifier(dtype=request.param, image_size=(16, 24))
    path = tmp_path_factory.mktemp("serving") / "pets"
    path = export(model, path, signatures=SIGNATURES, top_k=2, class_names=NAMES)
    return request.param, model, tf.saved_model.load(path).signatures


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
@pytest.mark.parametrize("batch_size", [1, 3, 17])
def test_each_signature_answers_as_the_model(batch_size, served):
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


@pytest.mark.slow
def test_names_and_types_are_in_the_file(served):
    """A server passes them to its clients."""
    for name, argument, shape, dtype in (
        ("serving_default", "image_bytes", [None], tf.string),
        ("uint8", "images", [None, None, None, 3], tf.uint8),
        ("float", "images", [None, 16, 24, 3], tf.float32),
        ("features", "image_bytes", [None], tf.string),
    ):
        _, arguments = served[2][name].structured_input_signature
        assert arguments == {argument: tf.TensorSpec(shape, dtype, name=argument)}


@pytest.mark.slow
def test_bad_images_are_named_by_their_index(served):
    good, serve = files(2), served[2]["serving_default"]
    for encoded, indices in (
        ([good[0], b"no image", good[1], good[1][:40]], r"\[1 3\]"),
        ([b""], r"\[0\]"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"by their index.*{indices}"):
            serve(image_bytes=tf.constant(encoded))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signature", "wrong"),
    [
        # An image of four times as many patches would have four answers.
        ("float", np.zeros((1, 32, 48, 3), "float32")),
        ("float", np.zeros((2, 24, 16, 3), "float32")),
        # Six channels would be two groups of three for TensorFlow.
        ("float", np.zeros((2, 16, 24, 6), "float32")),
        ("uint8", np.zeros((2, 20, 30, 6), "uint8")),
        ("uint8", np.zeros((20, 30, 3), "uint8")),
        ("float", np.full((2, 16, 24, 3), 255, "float32")),
        ("float", np.full((2, 16, 24, 3), np.nan, "float32")),
    ],
)
def test_images_of_another_shape_or_scale_are_refused(signature, wrong, served):
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected shape|must be in"):
        served[2][signature](images=tf.constant(wrong))


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
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


@pytest.mark.slow
def test_a_batch_and_an_image_size_are_fixed(tmp_path):
    model = classifier()
    path = export(model, tmp_path / "pets", batch_size=2, image_size=(8, 24), signatures=["float"])
    serve = tf.saved_model.load(path).signatures["serving_default"]
    assert serve.inputs[0].shape == (2, 8, 24, 3)
    pixels = images(2, 8, 24, 3)
    expected = keras_vit.resize(model, (8, 24)).predict(pixels, verbose=0)
    outputs = serve(images=tf.constant(pixels))
    np.testing.assert_allclose(outputs["logits"], expected, rtol=0, atol=1e-5)
    # All three classes: `top_k` is 5.
    assert outputs["top_k_labels"].numpy().tolist() == [
        [b"%d" % label for label in np.argsort(-row)] for row in expected
    ]


WITHOUT_KERAS = """
import sys
sys.modules["keras"] = sys.modules["keras_vit"] = None
import numpy as np
import tensorflow as tf
directory, *names = sys.argv[1:]
signatures = tf.saved_model.load(f"{directory}/pets/1").signatures
for name in names:
    inputs = np.load(f"{directory}/{name}.npy")
    for count in (1, 3, 17):
        (argument,) = signatures[name].structured_input_signature[1]
        outputs = signatures[name](**{argument: tf.constant(inputs[:count])})
        np.savez(f"{directory}/{name}_{count}", **{key: outputs[key] for key in outputs})
"""


def requests_and_answers(model, count):
    """Return for each signature its inputs, and the name and the values of an output."""
    # NumPy's strings lose zeros at their end, with which BMP and WebP may end.
    encoded = [file for file in files(3 * count) if not file.endswith(b"\0")][:count]
    pixels, (same_size, of_same_size) = preprocessed(encoded), of_one_size(count)
    logits = model.predict(pixels, verbose=0)
    features = to_numpy(keras_vit.features(model, pixels))
    return {
        "serving_default": (np.array(encoded), "logits", logits),
        "float": (pixels, "logits", logits),
        "uint8": (same_size, "logits", model.predict(of_same_size, verbose=0)),
        "features": (np.array(encoded), "features", features),
    }


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
def test_export_is_served_without_keras(tmp_path):
    """In a process where neither Keras nor this package can be imported."""
    model = classifier(image_size=(16, 24))
    export(model, tmp_path / "pets", signatures=SIGNATURES, class_names=NAMES)
    expected = requests_and_answers(model, 17)
    for name, (inputs, _, _) in expected.items():
        np.save(tmp_path / f"{name}.npy", inputs)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", WITHOUT_KERAS, tmp_path, *expected]
    subprocess.run(command, capture_output=True, check=True, env=environment)
    for count in (1, 3, 17):
        for name, (_, output, values) in expected.items():
            with np.load(tmp_path / f"{name}_{count}.npz") as found:
                np.testing.assert_allclose(found[output], values[:count], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_saved_model_cli_runs_an_export(tmp_path):
    """With the loader of TF Serving."""
    # A PNG and a JPEG: WebP may end with zeros, which NumPy's strings lose.
    model, encoded = classifier(image_size=(16, 24)), files(2)
    path = export(model, tmp_path / "pets", signatures=("bytes",), warmup_batch_sizes=())
    np.save(tmp_path / "inputs.npy", np.array(encoded))
    cli = pathlib.Path(sys.executable).with_name("saved_model_cli")
    command = [cli, "run", "--dir", path, "--tag_set", "serve", "--signature_def"]
    command += ["serving_default", "--inputs", f"image_bytes={tmp_path / 'inputs.npy'}"]
    subprocess.run([*command, "--outdir", tmp_path], check=True, capture_output=True)
    expected = model.predict(preprocessed(encoded), verbose=0)
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=0, atol=1e-5)
