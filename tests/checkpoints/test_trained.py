"""Paths and digests of the files that models are read from."""

from keras_vit.checkpoints.named_models import absolute_model_name, model_digest
from keras_vit.serving import Predictor


def test_names_are_found_from_any_directory(tmp_path, monkeypatch):
    (tmp_path / "blobs").mkdir()
    blob = tmp_path / "blobs" / "0123"
    blob.touch()
    (tmp_path / "snapshot").mkdir()
    # As in the cache of the Hub.
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(blob)
    (tmp_path / "linked").symlink_to(tmp_path / "snapshot")
    monkeypatch.chdir(tmp_path / "blobs")
    folder = tmp_path / "snapshot"
    for name in ("../snapshot", "../linked", "../snapshot/."):
        assert absolute_model_name(name) == str(folder)
        for absolute in (absolute_model_name, lambda file: Predictor(file).path):
            assert absolute(f"{name}/model.safetensors") == str(folder / "model.safetensors")
    for name in ("ViT_B16", "ViT_B16/imagenet21k", "hf://org/name", "../nowhere"):
        assert absolute_model_name(name) == name


def test_digests_are_those_of_the_weights(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = model_digest(tmp_path)
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / ".DS_Store").write_bytes(b"view")
    assert model_digest(tmp_path) == before
    (tmp_path / "config.json").write_text("{}")
    assert model_digest(tmp_path) != before
    assert model_digest("ViT_B16") == model_digest("hf://org/name") == {}
