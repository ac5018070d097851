"""`keras-vit convert --push`, to a server on this machine."""

import json

import pytest
import yaml

import keras_vit
from keras_vit.cli.convert import card_metadata
from tests.fixtures.checkpoints.hub_server import serving, use
from tests.fixtures.checkpoints.hub_uploads import MEMBER
from tests.fixtures.commands import CASE, logits_of, run
from tests.fixtures.reference import assert_logits, case_outputs, case_path

# huggingface_hub 2 gives its HTTP library files in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", MEMBER)
    with serving(tmp_path / "repositories", read_only=("others",)) as server:
        use(server, monkeypatch, tmp_path / "cache")
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("to", ["huggingface", "timm"])
def test_a_pushed_model_is_loaded_again(to, hub, tmp_path, capsys):
    path = tmp_path / "new"
    flags = ["--to", to, "--push", "hf://org/vit", "--private"]
    run(capsys, "convert", case_path(CASE), path, *flags)
    assert_logits(logits_of("hf://org/vit"), case_outputs(CASE)["logits"])
    assert hub.private == {"org/vit"}
    # What a repository is loaded from is the base of the next.
    flags = ["--to", to, "--push", "org/second", "--num-classes", 4]
    run(capsys, "convert", "hf://org/vit", tmp_path / "second", *flags)
    card = (hub.folder / "org" / "second" / "README.md").read_text()
    assert yaml.safe_load(card.split("---\n")[1])["base_model"] == "org/vit"
    assert keras_vit.from_checkpoint("hf://org/second").output_shape == (None, 4)


@pytest.mark.slow
def test_the_card_of_a_run_has_its_accuracy_and_no_paths(hub, finished_run, tmp_path, capsys):
    run(capsys, "convert", finished_run, tmp_path / "new", "--to", "timm", "--push", "org/photos")
    assert keras_vit.from_checkpoint("hf://org/photos").class_names == ("cat", "dog")
    card = (hub.folder / "org" / "photos" / "README.md").read_text()
    epochs = map(json.loads, (finished_run / "metrics.jsonl").read_text().splitlines())
    best = max(epoch["val_accuracy"] for epoch in epochs)
    assert f"- Accuracy: {best:.2%} on validation images\n" in card
    # Paths on this machine are not published.
    assert str(tmp_path.parent) not in card
    assert "folder:" not in card


def test_a_card_has_the_reported_accuracy_unless_the_head_is_new():
    model = keras_vit.ViT_Ti16(num_classes=1000, image_size=384)
    name = "ViT_Ti16/augreg_imagenet2012_384"
    facts = card_metadata(model, name)
    assert facts["accuracy"].startswith("78.22 % on imagenet2012 (google-research/")
    assert (facts["source"], facts["finetuned"]) == (name, False)
    assert "accuracy" not in card_metadata(model, name, is_changed=True)
