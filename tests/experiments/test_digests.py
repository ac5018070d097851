"""Digests of the files that a model is read from."""

import pytest

from keras_vit.experiments.digests import file_digest


@pytest.mark.parametrize("other", ["config.json", "model-2.safetensors"])
def test_files_next_to_weights_are_of_the_model(other, tmp_path):
    for name in ("model-1.safetensors", "model-2.safetensors", "config.json"):
        (tmp_path / name).write_text("{}")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    before = file_digest(index)
    assert before == file_digest(index)
    (tmp_path / other).write_text('{"num_attention_heads": 2}')
    assert file_digest(index) != before
