"""Files in fewer bits: their error, and their accuracy on the digits."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.serving.formats import FORMATS
from keras_vit.serving.formats import onnx as onnx_format
from keras_vit.serving.formats.graph import float32_bytes
from keras_vit.serving.runner import load_runner
from tests.fixtures.models import small_classifier
from tests.fixtures.serving.asking import write_file
from tests.fixtures.tiny import images

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")
pytest.importorskip("openvino")
pytest.importorskip("nncf")
pytest.importorskip("ai_edge_litert")

# Relative to the largest logit. Float16 has 11 bits of precision and bfloat16 8, and a result adds
# up a few such roundings; an int8 value is off by up to half a step of 255 in its tensor's range.
BOUNDS = {"float16": 2**-9, "bfloat16": 2**-5, "int8": 2**-3}
# Bound of the root mean square error, relative to that of the logits. It was 0.008 to 0.036 with
# five seeds; the largest error varied from 0.02 to 0.17 of the largest logit.
INT8_MEAN_BOUND = 2**-4
# Seconds for each.
SLOW = pytest.mark.large
PAIRS = [(name, quantize) for name, row in FORMATS.items() for quantize in row.precisions]


def relative_error(logits, expected):
    return np.abs(logits - expected).max() / np.abs(expected).max()


def mean_error(logits, expected):
    return np.sqrt(np.mean((logits - expected) ** 2) / np.mean(expected**2))


def digits(split):
    dataset = keras_vit.data.load("digits", split, (8, 8), 64)
    batches = list(dataset.as_numpy_iterator())
    return tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))


@pytest.fixture(scope="module")
def trained():
    """A small ViT that was trained on the digits."""
    pytest.importorskip("sklearn")
    model = vision_transformer(
        patch_size=4, embedding_dim=64, depth=2, num_heads=4, mlp_dim=128, num_classes=10,
        image_size=8,
    )  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(4e-3), loss=loss)
    model.fit(*digits("train"), batch_size=64, epochs=12, verbose=0)
    return model


@pytest.mark.parametrize(
    ("format_name", "quantize"),
    [pytest.param(*p, marks=pytest.mark.examples if p[1] == "int8" else SLOW) for p in PAIRS],
)
def test_the_accuracy_on_digits_stays(format_name, quantize, trained, tmp_path):
    calibration = digits("train")[0][:64]
    path = write_file(format_name, trained, tmp_path, quantize, calibration)
    pixels, labels = digits("test")
    expected = trained.predict(pixels, verbose=0)
    logits = load_runner(path)(pixels)
    # A file that was not quantized would be exact.
    assert relative_error(logits, expected) > 1e-6
    if quantize == "int8":
        assert mean_error(logits, expected) < INT8_MEAN_BOUND
    else:
        assert relative_error(logits, expected) < BOUNDS[quantize]
    accuracy, accuracy_now = (np.mean(x.argmax(axis=1) == labels) for x in (expected, logits))
    assert accuracy > 0.9
    assert accuracy_now > accuracy - 0.01
    weights = max(file.stat().st_size for file in path.parent.iterdir())
    assert weights < float32_bytes(trained)


@SLOW
@pytest.mark.parametrize("family", ["hybrid", "bit"])
@pytest.mark.parametrize(("format_name", "quantize"), PAIRS)
def test_hybrids_and_resnets_in_fewer_bits(format_name, quantize, family, tmp_path):
    model = small_classifier(family)
    batch = images(17, 16, 24, 3)
    expected = model.predict(batch, verbose=0)
    logits = load_runner(write_file(format_name, model, tmp_path, quantize, batch))(batch)
    assert logits.dtype == "float32" and logits.shape == (17, 3)
    assert relative_error(logits, expected) < BOUNDS[quantize]


@pytest.mark.slow
@pytest.mark.parametrize("quantize", ["int8", pytest.param("float16", marks=SLOW)])
def test_a_large_onnx_model_is_the_same_in_two_files(quantize, tmp_path, monkeypatch):
    """Even if the float32 model has its weights in a second file."""
    model = small_classifier("erf", embedding_dim=64, mlp_dim=128)
    batch = images(5, 16, 24, 3)
    inline = load_runner(write_file("onnx", model, tmp_path, quantize, batch))(batch)
    monkeypatch.setattr(onnx_format, "MAX_BYTES", 1000)
    path = write_file("onnx", model, tmp_path, quantize, batch)
    apart = load_runner(path)(batch)
    assert path.with_name("model.onnx.data").stat().st_mode == path.stat().st_mode
    np.testing.assert_allclose(apart, inline, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_float16_does_not_overflow_in_norms(tmp_path):
    """Tokens of large models have channels of more than 255, whose squares overflow."""
    model = small_classifier("erf")
    kernel = model.get_layer("patch_embedding").projection.kernel
    kernel.assign(kernel * 1e4)
    batch = images(3, 16, 24, 3)
    expected = model.predict(batch, verbose=0)
    path = write_file("onnx", model, tmp_path, "float16")
    onnx.checker.check_model(path, full_check=True)
    assert relative_error(load_runner(path)(batch), expected) < BOUNDS["float16"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_name", "quantize"),
    [pytest.param(*p, marks=() if p[0] == "onnx" else SLOW) for p in PAIRS if p[1] != "int8"],
)
def test_kernels_are_standardized_in_float32(format_name, quantize, tmp_path):
    """Variances of BiT's kernels are too small for float16."""
    model = small_classifier("bit")
    batch = images(3, 16, 24, 3)
    for weight in model.trainable_variables:
        if weight.name == "kernel" and weight.ndim == 4:
            weight.assign(weight * 0.003)
    expected = model.predict(batch, verbose=0)
    logits = load_runner(write_file(format_name, model, tmp_path, quantize))(batch)
    assert relative_error(logits, expected) < BOUNDS[quantize]


def test_weights_that_overflow_in_float16_are_refused(tmp_path):
    model = small_classifier("token")
    model.get_layer("head").bias.assign_add(1e5 * keras.ops.ones(model.output_shape[-1]))
    with pytest.raises(ValueError, match="`model` must have finite weights in float16"):
        write_file("onnx", model, tmp_path, "float16")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "calibration",
    [
        np.zeros((2, 16, 24, 3), "uint8"),
        np.full((2, 16, 24, 3), 255.0),
        np.full((2, 16, 24, 3), np.nan),
    ],
)
def test_calibration_images_that_are_not_preprocessed_are_refused(calibration, tmp_path):
    with pytest.raises(ValueError, match="`calibration` must be scaled to"):
        write_file("onnx", small_classifier("token"), tmp_path, "int8", calibration)
    assert not list(tmp_path.iterdir())
