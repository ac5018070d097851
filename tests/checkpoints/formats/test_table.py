"""The table of layouts: a new one needs a file and a row."""

import runpy
from pathlib import Path

import pytest

from keras_vit import resnet
from keras_vit.checkpoints import (
    from_checkpoint,
    inspect_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.save import format_for
from keras_vit.models import vision_transformer
from tests.fixtures.checkpoint_files import unchanged
from tests.fixtures.checkpoints.toy_layout import TOY
from tests.fixtures.contract import randomise
from tests.fixtures.models import TOWERS
from tests.fixtures.reference import case_path
from tests.fixtures.tiny import TINY

GENERATE = Path(__file__).parents[3] / "docs" / "generate.py"


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(FORMATS, "toy", TOY)


def test_a_layout_is_a_file_and_a_row(toy, tmp_path):
    model, path = vision_transformer(**TINY), tmp_path / "toy.npz"
    randomise(model)
    save_checkpoint(model, path, "toy")
    summary = inspect_checkpoint(path)
    assert (summary.format, summary.parameters) == ("toy", model.count_params())
    assert unchanged(from_checkpoint(path), model.get_weights())
    adapted = from_checkpoint(path, num_classes=5, image_size=24, format="toy")
    assert (adapted.input_shape, adapted.output_shape) == ((None, 24, 24, 3), (None, 5))
    load_checkpoint(model, path)
    with pytest.raises(ValueError, match="`path` must be of format 'google'"):
        from_checkpoint(path, format="google")


def test_the_row_is_in_errors_and_documentation(toy, tmp_path):
    with pytest.raises(ValueError, match="`format` must be one of .*'huggingface_siglip2', 'toy'"):
        save_checkpoint(vision_transformer(**TINY), tmp_path / "x.npz", "none")
    with pytest.raises(ValueError, match="`format` must be one of .*'keras', 'toy'"):
        from_checkpoint(case_path("a_vit_token"), format="keras_hub")
    with pytest.raises(ValueError, match="`path` must be a .npz file for format='toy'"):
        save_checkpoint(vision_transformer(**TINY), tmp_path / "x", "toy")
    page = runpy.run_path(str(GENERATE))["weight_maps"]()
    assert "## `toy`: a test" in page
    assert "| `toy.class_token.token` | `class_token/token` | as it is |" in page


@pytest.mark.parametrize(
    ("model", "suffix", "expected"),
    [
        ({}, ".npz", "google"),
        ({"pooling": "map"}, ".npz", "big_vision"),
        ({"num_registers": 1}, ".npz", "google"),
        ({"preactivation": True}, ".npz", "big_transfer"),
        ({"preactivation": False}, ".npz", "big_vision"),
        ({}, ".safetensors", "timm"),
        ({"representation_size": 4, "num_classes": 0}, ".safetensors", "huggingface"),
        (TOWERS["dinov2_giant"], ".safetensors", "huggingface_dinov2_with_registers"),
        ({**TOWERS["dinov3"], "num_classes": 0}, ".safetensors", "timm_eva"),
    ],
    ids=str,
)
def test_the_layout_for_a_file(model, suffix, expected):
    if "preactivation" in model:
        model = resnet((1,), 32, num_classes=2, image_size=32, **model)
    else:
        model = vision_transformer(**{**TINY, **model})
    assert format_for(model, suffix) == expected


def test_the_layout_that_the_model_was_read_from_is_preferred():
    model = vision_transformer(**{**TINY, **TOWERS["dinov3"], "num_classes": 0})
    model.layout = "huggingface_dinov3_vit"
    assert format_for(model, ".safetensors") == "huggingface_dinov3_vit"
    assert format_for(model, ".npz") == "google"
