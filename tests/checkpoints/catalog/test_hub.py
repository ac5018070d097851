"""`hf://` addresses, with a server on this machine."""

import json
import shutil

import pytest
import safetensors.numpy
from huggingface_hub import constants

import keras_vit
from keras_vit.checkpoints.catalog.download import find_file
from tests.fixtures.checkpoints.hub_server import COMMIT, serving, use
from tests.fixtures.contract import to_numpy
from tests.fixtures.reference import REFERENCE, assert_logits, case_outputs

CASE = "hf_vit_imagenet_mean_std"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    folder = tmp_path / "repositories"
    shutil.copytree(REFERENCE / CASE, folder / "org" / "vit")
    (folder / "org" / "pickled").mkdir()
    (folder / "org" / "pickled" / "pytorch_model.bin").write_bytes(b"no weights")
    (folder / "org" / "vit" / "tf_model.h5").write_bytes(b"not needed")
    with serving(folder) as server:
        use(server, monkeypatch, tmp_path / "cache")
        yield server


def names_of(requests):
    found = [path for method, path, _ in requests if method == "GET" and "/resolve/" in path]
    return [path.rpartition("/")[2] for path in found]


@pytest.mark.parametrize("address", ["hf://org/vit", f"hf://org/vit@{COMMIT}/model.safetensors"])
def test_a_model(address, hub):
    model = keras_vit.from_checkpoint(address)
    reference = case_outputs(CASE)
    assert_logits(to_numpy(model(reference["images"])), reference["logits"])
    assert sorted(names_of(hub.requests)) == [
        "config.json",
        "model.safetensors",
        "preprocessor_config.json",
    ]


@pytest.mark.parametrize("file", ["", "/open_clip_model.safetensors"])
def test_a_model_of_open_clip(file, hub):
    shutil.copytree(REFERENCE / "open_clip_vit", hub.folder / "org" / "clip")
    model = keras_vit.from_checkpoint(f"hf://org/clip{file}")
    reference = case_outputs("open_clip_vit")
    assert_logits(to_numpy(model(reference["images"])), reference["image_embeds"])


@pytest.mark.parametrize("file", ["", "/model.safetensors"])
def test_the_weights_of_a_pull_request(file, hub):
    """Many repositories have pickled weights, and others only there."""
    pull_request = hub.folder / "org" / "pickled@refs%2Fpr%2F5"
    shutil.copytree(REFERENCE / "hf_dinov2_classifier", pull_request)
    hub.add_commit(pull_request, [])
    model = keras_vit.from_checkpoint(f"hf://org/pickled@refs/pr/5{file}")
    reference = case_outputs("hf_dinov2_classifier")
    assert_logits(to_numpy(model(reference["images"])), reference["logits"])
    assert model.class_names == ("cat", "dog", "owl")


@pytest.mark.slow
def test_names_of_the_catalog(hub):
    """The name of a row loads its repository, and its classes are ImageNet's."""
    model = keras_vit.ViT_Ti16(num_classes=1000, distillation_token=True, activation="gelu")
    repository = hub.folder / "timm" / "deit_tiny_distilled_patch16_224.fb_in1k"
    keras_vit.save_checkpoint(model, repository, "timm")
    for loaded in (
        keras_vit.from_checkpoint("ViT_Ti16/deit_distilled"),
        keras_vit.ViT_Ti16(weights="deit_distilled"),
    ):
        assert loaded.options.resolved() == model.options.resolved()
        assert loaded.class_names[:2] == ("tench", "goldfish")


def test_shards(hub):
    folder = hub.folder / "org" / "vit"
    arrays = sorted(safetensors.numpy.load_file(folder / "model.safetensors").items())
    (folder / "model.safetensors").unlink()
    shards = {f"model-0000{i}-of-00002.safetensors": dict(arrays[i - 1 :: 2]) for i in (1, 2)}
    for name, shard in shards.items():
        safetensors.numpy.save_file(shard, folder / name)
    places = {array: name for name, shard in shards.items() for array in shard}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    model = keras_vit.from_checkpoint("hf://org/vit")
    reference = case_outputs(CASE)
    assert_logits(to_numpy(model(reference["images"])), reference["logits"])


def test_nothing_is_asked_for_twice(hub, monkeypatch):
    (hub.folder / "org" / "vit" / "preprocessor_config.json").unlink()
    first = find_file("hf://org/vit")
    hub.requests.clear()
    assert find_file("hf://org/vit") == first
    assert names_of(hub.requests) == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert find_file("hf://org/vit") == first
    assert hub.requests == []


def test_a_repository_with_only_pickled_weights(hub):
    assert find_file("hf://org/pickled").read_bytes() == b"no weights"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://org/absent", "Repository Not Found"),
        ("hf://org/vit@v2", "Revision Not Found"),
        ("hf://org/vit/other.safetensors", "must have other.safetensors"),
        ("hf://org/vit/../x.npz", "must be `hf://ORG/NAME"),
    ],
)
def test_an_address_that_is_refused(address, message, hub):
    with pytest.raises(ValueError, match=message):
        find_file(address)
