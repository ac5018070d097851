"""`load_runner` finds the file of an export."""

import pytest

import keras_vit
from keras_vit.serving.formats.files import write_onnx
from keras_vit.serving.runners import load_runner

pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")


@pytest.mark.slow
def test_a_runner_finds_its_file(tmp_path):
    model = keras_vit.resnet((1,), width=32, num_classes=3, image_size=32)
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
    file = write_onnx(model, tmp_path / "2")
    for path in (file, file.parent, tmp_path):
        assert load_runner(path).image_shape == (32, 32, 3)
    with pytest.raises(ValueError, match="which is not there"):
        load_runner(file.with_name("other.onnx"))
