"""Files of torchvision, which records neither the heads nor how images are prepared."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
from keras import ops

from keras_vit.checkpoints import from_checkpoint, reader, save_checkpoint
from keras_vit.checkpoints.catalog import find_checkpoint
from keras_vit.checkpoints.configuration import IMAGENET
from tests.fixtures.checkpoint_files import arrays_of
from tests.fixtures.reference import REFERENCE, case_outputs

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")
NAME = "vit.safetensors"
HEADS = {"num_heads": 2}
# The weights are small: the tanh GELU moves the logits by 1.8e-5.
TOLERANCE = 5e-6


@pytest.fixture(scope="module")
def arrays():
    state = torch.load(REFERENCE / "torchvision_vit.pth", weights_only=True)
    return {name: tensor.numpy() for name, tensor in state.items()}


@pytest.fixture
def path(arrays, tmp_path):
    safetensors.numpy.save_file(arrays, tmp_path / NAME)
    return tmp_path / NAME


@pytest.fixture
def model(path):
    return from_checkpoint(path, **HEADS)


def check(model):
    reference = case_outputs("torchvision_vit")
    logits = ops.convert_to_numpy(model(reference["images"]))
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_logits(suffix, path, caplog):
    file = path if suffix == ".safetensors" else REFERENCE / "torchvision_vit.pth"
    check(from_checkpoint(file, **HEADS))
    assert not caplog.messages


@pytest.mark.parametrize(
    ("new", "old"),
    [("mlp.0.", "mlp.linear_1."), ("mlp.3.", "mlp.linear_2."), ("heads.head.", "heads.")],
)
def test_other_names(new, old, arrays, tmp_path):
    renamed = {name.replace(new, old): array for name, array in arrays.items()}
    assert renamed.keys() != arrays.keys()
    safetensors.numpy.save_file(renamed, tmp_path / NAME)
    check(from_checkpoint(tmp_path / NAME, **HEADS))


def test_written_back(model, arrays, tmp_path):
    save_checkpoint(model, tmp_path / "new.safetensors")
    written = arrays_of(tmp_path / "new.safetensors")
    assert written.keys() == arrays.keys()
    for name, array in arrays.items():
        # The patch projection has absorbed ImageNet's normalization.
        tolerance = 1e-6 if name.startswith("conv_proj") else 0
        np.testing.assert_allclose(written[name], array, rtol=0, atol=tolerance)


def test_json_files_in_the_folder_are_of_another_model(path, model):
    recorded = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    path.with_name("preprocessor_config.json").write_text(json.dumps(recorded))
    save_checkpoint(model, path.with_name("new.safetensors"))
    for name in (path.name, "new.safetensors"):
        check(from_checkpoint(path.with_name(name), **HEADS))


def test_a_config_next_to_the_file_does_not_record_the_heads(model, tmp_path, caplog):
    (tmp_path / "config.json").write_text('{"num_heads": 2}')
    save_checkpoint(model, tmp_path / "new.safetensors")
    assert "torchvision files do not record num_heads: give num_heads=2" in caplog.text


@pytest.mark.parametrize(
    ("name", "interpolation", "before_crop"),
    [
        ("ViT_B16/torchvision_v1", "bilinear", 256),
        ("ViT_L16/torchvision_v1", "bilinear", 242),
        ("ViT_B16/torchvision_swag_linear", "bicubic", 224),
        ("ViT_H14/torchvision_swag_e2e", "bicubic", 518),
    ],
)
def test_images_of_published_files(name, interpolation, before_crop, path, monkeypatch):
    row = find_checkpoint(name)
    published = dataclasses.replace(row, url=f"https://server/{NAME}")
    monkeypatch.setattr(reader, "CHECKPOINTS", (published,))
    image_spec = from_checkpoint(path, **HEADS).image_spec
    assert image_spec.interpolation == interpolation
    assert image_spec.length_before_crop(row.image_size) == before_crop
    assert image_spec.normalization == IMAGENET
