"""Exports of every kind of model answer as the model does, on files of every kind."""

import functools
import io

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


def with_thresholds():
    model = small_classifier("token")
    model.thresholds = (0.2, 0.5, 0.8)
    return model


def of_values():
    model = small_classifier("token")
    model.predicts_values = True
    return model


MODELS = {
    "classifier": lambda: small_classifier("token"),
    "several labels": with_thresholds,
    "values": of_values,
    "bit": lambda: small_classifier("bit"),
    "segmenter": segmenter,
    **{family: functools.partial(tower, family) for family in TOWERS},
}


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
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("format", FORMATS)
def test_exports_agree_with_the_model(format, kind, tmp_path):
    need(format)
    model, encoded = MODELS[kind](), odd_files(17)
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
def test_features_in_fewer_bits_agree(format, quantize, tmp_path):
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
def test_signatures_of_a_tower_return_features(tmp_path):
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


@pytest.mark.slow
def test_the_commands_export_verify_and_predict_a_tower(tmp_path, capsys):
    tower("dinov2").save(tmp_path / "tower.keras")
    (tmp_path / "photos").mkdir()
    for number, file in enumerate(odd_files(9)):
        (tmp_path / "photos" / f"{number}.png").write_bytes(file)
    tower_file, served, photos = (str(tmp_path / n) for n in ("tower.keras", "served", "photos"))
    main(["export", tower_file, served, "--verify", photos])
    assert "Verified on 9 images" in capsys.readouterr().out
    main(["predict", served, photos, "--output", str(tmp_path / "found"), "--outputs", "features"])
    (file,) = (tmp_path / "found").glob("*.parquet")
    found = pyarrow.parquet.read_table(file).to_pydict()
    predict = Predictor(tower_file, ["features"])
    expected = predict({"path": [f"{photos}/{number}.png" for number in range(9)]})
    np.testing.assert_allclose(found["features"], expected["features"], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_classifier_is_exported_with_features_alone(tmp_path):
    model, encoded = small_classifier("token"), odd_files(3)[::2]
    export(model, tmp_path, signatures=("features",))
    found = Predictor(tmp_path, ["features"])({"bytes": encoded})["features"]
    expected = to_numpy(keras_vit.features(model, preprocess_files(encoded, (16, 24))))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
