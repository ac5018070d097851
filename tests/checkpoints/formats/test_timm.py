"""Files with timm's names that timm did not write."""

import numpy as np
import pytest
import safetensors.numpy
from keras import ops

from keras_vit.checkpoints import from_checkpoint, save_checkpoint
from tests.fixtures.checkpoint_files import arrays_of, random_model
from tests.fixtures.tiny import images

DINOV2 = {"activation": "gelu", "layer_scale": 1e-5, "epsilon": 1e-6}


def original_of_dinov2(model, path):
    """Write the arrays of a model as the repository of DINOv2 does: it has a token of masks, and
    its registers have no positions."""
    save_checkpoint(model, path, "timm")
    arrays = arrays_of(path)
    arrays["mask_token"] = np.ones((1, model.options.embedding_dim), "float32")
    if "reg_token" in arrays:
        arrays["register_tokens"] = arrays.pop("reg_token")
        table = arrays["pos_embed"]
        arrays["register_tokens"] += table[:, 1:4]
        arrays["pos_embed"] = np.delete(table, [1, 2, 3], axis=1)
    safetensors.numpy.save_file(arrays, path)


@pytest.mark.parametrize("num_registers", [0, 3])
def test_dinov2_of_its_own_repository(num_registers, tmp_path, caplog):
    model = random_model({**DINOV2, "num_registers": num_registers})
    original_of_dinov2(model, tmp_path / "vits14.safetensors")
    heads = model.options.num_heads
    again = from_checkpoint(tmp_path / "vits14.safetensors", num_heads=heads)
    assert "no file records how images are prepared" in caplog.text
    batch = images(2, *model.input_shape[1:])
    outputs = (ops.convert_to_numpy(m(batch)) for m in (again, model))
    np.testing.assert_allclose(*outputs, rtol=0, atol=1e-5)
