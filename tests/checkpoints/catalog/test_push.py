"""Uploads to the Hub, to a server on this machine."""

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import push_to_hub
from tests.fixtures.checkpoints.hub_server import serving, use
from tests.fixtures.checkpoints.hub_uploads import MEMBER, STRANGER
from tests.fixtures.contract import to_numpy
from tests.fixtures.reference import case_model, case_outputs

# huggingface_hub 2 gives its HTTP library files in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
CASE = "hf_vit_imagenet_mean_std"
NAMES = ("tabby cat", "dog", "bird_1")
FILES = {
    "huggingface": ["README.md", "config.json", "model.safetensors", "preprocessor_config.json"],
    "huggingface_tf": ["README.md", "config.json", "preprocessor_config.json", "tf_model.h5"],
    "timm": ["README.md", "config.json", "model.safetensors"],
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", MEMBER)
    theirs = tmp_path / "repositories" / "others" / "vit"
    theirs.mkdir(parents=True)
    (theirs / "README.md").write_text("# Theirs\n")
    with serving(tmp_path / "repositories", read_only=("others",)) as server:
        use(server, monkeypatch, tmp_path / "cache")
        yield server


@pytest.fixture
def directory(tmp_path):
    return written(tmp_path / "written")


def written(path, to="huggingface"):
    model = case_model(CASE)
    model.class_names = NAMES
    keras_vit.save_checkpoint(model, path, to)
    return path


def outputs_of(path):
    model = keras_vit.from_checkpoint(path)
    return to_numpy(model(case_outputs(CASE)["images"]))


def card_of(hub, name="org/vit"):
    return (hub.folder / name / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("to", FILES)
def test_what_is_pushed_is_loaded(to, hub, tmp_path):
    path = written(tmp_path / "new", to)
    for name in ("notes.txt", "preprocessor_config.json"):
        if not (path / name).exists():
            (path / name).write_text("{}")
    address = push_to_hub(path, "hf://org/vit")
    assert address.startswith(f"{hub.address}/org/vit/commit/")
    assert hub.commits == [FILES[to]]
    model = keras_vit.from_checkpoint("hf://org/vit")
    assert model.class_names == NAMES
    np.testing.assert_array_equal(outputs_of("hf://org/vit"), outputs_of(path))


@pytest.mark.slow
def test_branch(hub, directory):
    push_to_hub(directory, "org/vit@v2")
    push_to_hub(directory, "org/vit@v2")
    assert list((hub.folder / "org" / "vit").iterdir()) == []
    np.testing.assert_array_equal(outputs_of("hf://org/vit@v2"), outputs_of(directory))
    assert '"hf://org/vit@v2"' in card_of(hub, "org/vit@v2")


@pytest.mark.slow
def test_private(hub, directory):
    push_to_hub(directory, "org/mine", private=True)
    push_to_hub(directory, "org/all")
    assert hub.private == {"org/mine"}
    with pytest.raises(ValueError, match="it is public, so that `private` has no effect"):
        push_to_hub(directory, "org/all", private=True)
    assert len(hub.commits) == 2


@pytest.mark.slow
def test_another_card_is_kept(hub, directory, caplog):
    push_to_hub(directory, "org/vit")
    theirs = card_of(hub).replace("# vit", "# My vit")
    (hub.folder / "org" / "vit" / "README.md").write_text(theirs)
    model = case_model(CASE)
    model.get_layer("head").bias.assign([1, 2, 3])
    keras_vit.save_checkpoint(model, directory, "huggingface")
    push_to_hub(directory, "org/vit")
    assert "org/vit already has a README.md, which is kept" in caplog.text
    assert card_of(hub) == theirs
    assert hub.commits[1] == FILES["huggingface"][1:]
    np.testing.assert_array_equal(outputs_of("hf://org/vit"), outputs_of(directory))


def test_weights_that_would_not_be_read(hub, directory, tmp_path):
    push_to_hub(directory, "org/vit")
    with pytest.raises(ValueError, match="has a model.safetensors, which is read instead of tf_mo"):
        push_to_hub(written(tmp_path / "tensorflow", "huggingface_tf"), "org/vit")
    assert len(hub.commits) == 1


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("others/vit", {"token": STRANGER}, "403 Forbidden"),
        ("org/vit", {"token": "revoked"}, "401 Unauthorized"),
        ("org/vit", {"refused": "/large"}, "Error while uploading 'model.safetensors'"),
        ("org/vit@", {}, r"must be `ORG/NAME\[@BRANCH\]`"),
    ],
)
def test_what_is_refused_changes_nothing(name, settings, message, hub, directory, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", settings.get("token", MEMBER))
    hub.refused.add(settings.get("refused"))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(ValueError, match=message):
        push_to_hub(directory, name)
    assert hub.commits == []
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_an_incomplete_directory_is_refused(hub, directory):
    (directory / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match="is not a file"):
        push_to_hub(directory, "org/vit")
    assert hub.requests == []
