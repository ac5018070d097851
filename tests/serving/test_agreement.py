"""Exports of every kind of model answer as the model does, on files of every kind."""

import io
import os
import subprocess
import sys

import keras
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit.cli import main
from keras_vit.models import vision_transformer
from keras_vit.models.structure import output_name
from keras_vit.serving import Predictor, preprocess_files
from keras_vit.serving.export import export
from keras_vit.serving.formats import FORMATS
from keras_vit.serving.predictor import predict_column
from keras_vit.serving.runner import export_runner, model_runner
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.images import random_image
from tests.fixtures.models import FAMILIES, small_classifier
from tests.fixtures.serving.asking import BOTH, ask
from tests.fixtures.tiny import TINY, images

PACKAGES = {"onnx": ("onnxruntime", "tf2onnx"), "litert": ("ai_edge_litert",)}
TOWERS = ("dinov2", "clip", "siglip", "hybrid")


def saved(picture, file_format="PNG", **options):
    buffer = io.BytesIO()
    picture.save(buffer, file_format, **options)
    return buffer.getvalue()


def odd_files(count):
    """Encoded images: gray, with alpha, of 16 bits, turned, of one pixel, of four colors, ..."""
    exif = Image.Exif()
    exif[0x0112] = 6
    found = []
    for seed in range(-(-count // 8)):
        picture = Image.fromarray(random_image(20 + seed, 30, seed=seed))
        deep = np.asarray(picture.convert("L")).astype("uint16") * 257
        found += [
            saved(picture.convert("L")),
            saved(picture.convert("RGBA")),
            saved(Image.fromarray(deep)),
            saved(picture, "JPEG", quality=95, exif=exif),
            saved(picture.resize((1, 1))),
            saved(picture.convert("CMYK"), "JPEG", quality=95),
            saved(picture, "WEBP", lossless=True),
            saved(picture.convert("P")),
        ]
    return found[:count]


def tower(family, **options):
    """A model without a head that returns features."""
    options = {"num_classes": 0, "image_size": (16, 24), **options}
    model = vision_transformer(**{**TINY, **FAMILIES[family], **options})
    randomise(model)
    return model


def segmenter():
    maps = keras_vit.backbone(vision_transformer(**TINY), ("encoder_norm",), "blocks")
    model = keras_vit.segmenter(maps, 3)
    randomise(model)
    return model


def make(kind):
    if kind in TOWERS:
        return tower(kind)
    model = segmenter() if kind == "segmenter" else small_classifier("token")
    if kind == "several labels":
        model.thresholds = (0.2, 0.5, 0.8)
    return model


def need(format):
    for package in PACKAGES.get(format, (format,) if format == "openvino" else ()):
        pytest.importorskip(package)


def outputs_of(runner, name, encoded):
    column = np.empty(len(encoded), object)
    column[:] = encoded
    found = predict_column(runner, "bytes", column, (name,), batch_size=len(encoded))
    assert set(found["error"]) == {None}
    return found[name]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", "several labels", "segmenter", *TOWERS])
@pytest.mark.parametrize("format", FORMATS)
def test_exports_agree_with_the_model(format, kind, tmp_path):
    need(format)
    model, encoded = make(kind), odd_files(17)
    name = output_name(model)
    expected = outputs_of(model_runner(model, (name,), 17), name, encoded)
    assert np.ptp(expected, axis=0).max() > 0.01
    runner = export_runner(export(model, tmp_path, format=format))
    for count in (1, 3, 17):
        found = outputs_of(runner, name, encoded[:count])
        np.testing.assert_allclose(found, expected[:count], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "quantize"),
    [(row.name, name) for row in FORMATS.values() for name in row.precisions],
)
def test_features_in_fewer_bits(format, quantize, tmp_path):
    need(format)
    if (format, quantize) == ("openvino", "int8"):
        pytest.importorskip("nncf")
    # LiteRT leaves small kernels as they are.
    model = tower("dinov2", embedding_dim=64, mlp_dim=128)
    batch = images(17, 16, 24, 3)
    options = {"format": format, "quantize": quantize, "calibration": batch}
    found = export_runner(export(model, tmp_path, **options))(batch)
    expected = model.predict(batch, verbose=0)
    error = np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2))
    # A file that was not quantized would be exact.
    assert 1e-6 < error < 2**-4


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="Keras does not export from torch")
def test_signatures_of_a_tower(tmp_path):
    model, encoded = tower("clip"), odd_files(5)
    model.image_spec = keras_vit.core.image_spec.ImageSpec("bicubic", antialias=True)
    pixels = preprocess_files(encoded, (16, 24), model.image_spec)
    expected = model.predict(pixels, verbose=0)
    version = export(model, tmp_path / "tower", on_bad_image="flag")
    served = tf.saved_model.load(version).signatures
    found = served["serving_default"](image_bytes=tf.constant([*encoded, b"no image"]))
    assert found["is_bad"].numpy().tolist() == [False] * 5 + [True]
    np.testing.assert_allclose(found["features"][:5], expected, rtol=0, atol=1e-5)
    assert not found["features"][5].numpy().any()
    found = served["float"](images=tf.constant(pixels))
    assert set(found) == {"features"}
    np.testing.assert_allclose(found["features"], expected, rtol=0, atol=1e-5)
    assert served["uint8"](images=random_image()[None])["features"].shape == expected[:1].shape
    assert not (version / "assets" / "labels.txt").exists()


WITHOUT_KERAS = """
import sys
sys.modules["keras"] = sys.modules["keras_vit"] = None
import numpy as np
import tensorflow as tf
served = tf.saved_model.load(f"{sys.argv[1]}/1").signatures
encoded = [open(f"{sys.argv[1]}/{number}.png", "rb").read() for number in range(3)]
for name in ("serving_default", "features"):
    found = served[name](image_bytes=tf.constant(encoded))["features"]
    np.save(f"{sys.argv[1]}/{name}.npy", found)
"""


@pytest.mark.slow
def test_a_tower_is_served_without_keras(tmp_path):
    """In a process where neither Keras nor this package can be imported."""
    model, encoded = tower("dinov2"), odd_files(3)
    export(model, tmp_path, signatures=("bytes", "features"))
    for number, file in enumerate(encoded):
        (tmp_path / f"{number}.png").write_bytes(file)
    expected = model.predict(preprocess_files(encoded, (16, 24)), verbose=0)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", WITHOUT_KERAS, tmp_path]
    subprocess.run(command, capture_output=True, check=True, env=environment)
    for name in ("serving_default", "features"):
        found = np.load(tmp_path / f"{name}.npy")
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@BOTH
def test_a_client_of_a_tower(api, tmp_path):
    pytest.importorskip("tensorflow_serving")
    from tests.fixtures.serving.peer import Peer

    model, encoded = tower("siglip"), odd_files(3)
    export(model, tmp_path / "tower")
    expected = model.predict(preprocess_files(encoded, (16, 24)), verbose=0)
    with Peer({"tower": tmp_path / "tower"}).serve() as peer, ask(peer, api, "tower") as client:
        outputs = client.predict(encoded, batch_size=2)
    assert set(outputs) == {"features"}
    np.testing.assert_allclose(outputs["features"], expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_the_commands_export_verify_and_predict_a_tower(format, tmp_path, capsys):
    need(format)
    model = tower("dinov2")
    model.save(tmp_path / "tower.keras")
    (tmp_path / "photos").mkdir()
    for number, file in enumerate(odd_files(9)):
        (tmp_path / "photos" / f"{number}.png").write_bytes(file)
    tower_file, served, photos = (str(tmp_path / n) for n in ("tower.keras", "served", "photos"))
    main(["export", tower_file, served, "--format", format, "--verify", photos])
    out = capsys.readouterr().out
    assert "Verified on 9 images: largest difference of features" in out
    assert "mean cosine similarity 100.00%" in out
    main(["predict", served, photos, "--output", str(tmp_path / "found"), "--outputs", "features"])
    (file,) = (tmp_path / "found").glob("*.parquet")
    found = pyarrow.parquet.read_table(file).to_pydict()
    predict = Predictor(tower_file, ["features"])
    expected = predict({"path": [f"{photos}/{number}.png" for number in range(9)]})
    np.testing.assert_allclose(found["features"], expected["features"], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="`outputs` must be those .*it has features"):
        Predictor(served)({"path": [f"{photos}/0.png"]})


@pytest.mark.slow
def test_a_classifier_with_features_alone_is_verified(tmp_path, capsys):
    small_classifier("token").save(tmp_path / "model.keras")
    (tmp_path / "photo.png").write_bytes(odd_files(1)[0])
    model, photo = str(tmp_path / "model.keras"), str(tmp_path / "photo.png")
    main(["export", model, str(tmp_path), "--signatures", "features", "--verify", photo])
    assert "difference of features" in capsys.readouterr().out
    found = Predictor(tmp_path, ["features"])({"path": [photo]})["features"]
    pixels = preprocess_files([photo], (16, 24))
    expected = to_numpy(keras_vit.features(keras.models.load_model(model), pixels))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
