"""Models as ONNX, LiteRT and OpenVINO files, run by their own runtimes."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.serving.export import export
from keras_vit.serving.formats import FORMATS, onnx
from keras_vit.serving.formats.graph import float32_bytes
from keras_vit.serving.runner import load_runner
from tests.fixtures.models import FAMILIES, small_classifier
from tests.fixtures.serving.asking import FILE_FORMATS, write_file
from tests.fixtures.tiny import images

pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")
pytest.importorskip("openvino")
pytest.importorskip("ai_edge_litert")

SLOW = pytest.mark.large
# Others take seconds.
QUICK = {("litert", "erf"), ("onnx", "hybrid")}
FILES = {"onnx": ["model.onnx"], "litert": ["model.tflite"], "openvino": ["model.bin", "model.xml"]}
OTHERS = ["assets", "model.json"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files with a small model in each format."""
    model, directory = small_classifier("token"), tmp_path_factory.mktemp("written")
    return {name: write_file(name, model, directory) for name in FILE_FORMATS}


def assert_same_logits(path, model):
    run = load_runner(path)
    batch = images(17, 16, 24, 3)
    expected = model.predict(batch, verbose=0)
    assert np.ptp(expected) > 0.1
    for batch_size in (1, 3, 17, 0):
        logits = run(batch[:batch_size])
        assert logits.dtype == "float32" and logits.shape == (batch_size, 3)
        np.testing.assert_allclose(logits, expected[:batch_size], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_name", "family"),
    [
        pytest.param(name, family, marks=() if (name, family) in QUICK else SLOW)
        for name in FILE_FORMATS
        for family in (*FAMILIES, "bit")
    ],
)
def test_the_logits_are_those_of_keras(format_name, family, tmp_path):
    model = small_classifier(family)
    path = write_file(format_name, model, tmp_path)
    found = sorted(file.name for file in path.parent.iterdir())
    assert found == sorted([*FILES[format_name], *OTHERS])
    assert_same_logits(path, model)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    ["mixed_bfloat16", *(pytest.param(p, marks=SLOW) for p in ("mixed_float16", "bfloat16"))],
)
def test_a_file_computes_in_float32_under_every_policy(policy, tmp_path):
    model = small_classifier("erf", dtype=policy)
    exact = small_classifier("erf")
    exact.set_weights([np.asarray(weight, "float32") for weight in model.get_weights()])
    assert_same_logits(write_file("onnx", model, tmp_path), exact)
    assert model.get_layer("block_0").dtype_policy.name == policy


@pytest.mark.slow
def test_onnx_inputs_and_outputs_have_names(written):
    import onnxruntime
    from onnx import checker

    path = written["onnx"]
    checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = [(e.name, e.type, e.shape) for e in (*session.get_inputs(), *session.get_outputs())]
    assert found == [
        ("images", "tensor(float)", ["batch", 16, 24, 3]),
        ("logits", "tensor(float)", ["batch", 3]),
    ]


@pytest.mark.slow
def test_litert_inputs_and_outputs_have_names(written):
    from ai_edge_litert.interpreter import Interpreter

    answer = Interpreter(str(written["litert"])).get_signature_runner()
    details = answer.get_input_details() | answer.get_output_details()
    found = [(name, one["dtype"], list(one["shape_signature"])) for name, one in details.items()]
    assert found == [("images", np.float32, [-1, 16, 24, 3]), ("logits", np.float32, [-1, 3])]


@pytest.mark.slow
def test_openvino_inputs_and_outputs_have_names(written):
    import openvino as ov

    model = ov.Core().read_model(written["openvino"])
    found = [(e.names, e.element_type, e.partial_shape) for e in (*model.inputs, *model.outputs)]
    assert found == [
        ({"images"}, ov.Type.f32, ov.PartialShape([-1, 16, 24, 3])),
        ({"logits"}, ov.Type.f32, ov.PartialShape([-1, 3])),
    ]


@pytest.mark.slow
def test_weights_of_a_large_onnx_model_are_in_a_second_file(tmp_path, monkeypatch):
    model = small_classifier("erf", embedding_dim=64, mlp_dim=128)
    monkeypatch.setattr(onnx, "MAX_BYTES", float32_bytes(model) - 1)
    path = write_file("onnx", model, tmp_path)
    names = {file.name for file in path.parent.iterdir()}
    assert names == {"model.onnx", "model.onnx.data", *OTHERS}
    weights = path.with_name("model.onnx.data")
    assert weights.stat().st_size > 0.9 * float32_bytes(model)
    assert_same_logits(path, model)


def test_litert_refuses_large_models(tmp_path, monkeypatch):
    small = dataclasses.replace(FORMATS["litert"], max_bytes=1000)
    monkeypatch.setitem(FORMATS, "litert", small)
    with pytest.raises(ValueError, match="holds less than"):
        export(small_classifier("token"), tmp_path, format="litert")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_model_stays_as_it_was(tmp_path):
    model = small_classifier("erf", dropout=0.1)
    model.get_layer("block_0").trainable = False
    before = model.get_config(), model.get_weights()
    write_file("onnx", model, tmp_path)
    assert model.get_config() == before[0]
    for old, new in zip(before[1], model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.slow
def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    def fail(model, path):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(onnx, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        export(small_classifier("token"), tmp_path, format="onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("format_name", FILE_FORMATS)
def test_damaged_files_are_refused(format_name, written, tmp_path):
    complete, path = written[format_name].read_bytes(), tmp_path / written[format_name].name
    # OpenVINO's weights are in another file.
    without_weights = [complete] if format_name == "openvino" else []
    for damaged in (b"<html>", complete[: len(complete) // 2], *without_weights):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="`path` must be a complete export"):
            load_runner(path)


@pytest.mark.slow
def test_images_that_are_not_preprocessed_are_refused(written):
    run = load_runner(written["onnx"])
    for wrong, message in (
        (images(1, 24, 16, 3), "must be an array"),
        (np.zeros((1, 16, 24, 3), "uint8"), "of dtype uint8"),
        (np.full((1, 16, 24, 3), 255, "float32"), "values from"),
        (np.full((1, 16, 24, 3), np.nan, "float32"), "values from"),
    ):
        with pytest.raises(ValueError, match=message):
            run(wrong)


@pytest.mark.large
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends_write_the_same_files(backend, tmp_path):
    code = """
import pathlib
import sys
import numpy as np
from tests.fixtures.tiny import images
from tests.fixtures.models import small_classifier
from tests.fixtures.serving.asking import FILE_FORMATS, write_file
for family in ("erf", "bit"):
    model, folder = small_classifier(family), pathlib.Path(sys.argv[1], family)
    folder.mkdir()
    np.save(folder / "expected.npy", model.predict(images(3, 16, 24, 3), verbose=0))
    for name in FILE_FORMATS:
        write_file(name, model, folder)
"""
    environment = {**os.environ, "KERAS_BACKEND": backend}
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, env=environment)
    for family in ("erf", "bit"):
        expected = np.load(tmp_path / family / "expected.npy")
        for version in (1, 2, 3):
            logits = load_runner(tmp_path / family / str(version))(images(3, 16, 24, 3))
            np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
